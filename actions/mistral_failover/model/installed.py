# SPDX-License-Identifier: Apache-2.0
"""What installed packages add to this one: rungs, resource types and alarm sources.

Each of these is an entry point, in this package's own ``setup.cfg`` or in another package's.
"""

import functools
import logging
from collections.abc import Mapping
from typing import Any

from stevedore import ExtensionManager

LOG = logging.getLogger(__name__)
_OWN = "mistral_failover."


@functools.cache
def installed(group: str) -> Mapping[str, Any]:
    """Return what the entry points of ``group`` lead to, by name, sorted; looked up once.

    If two packages use one name, this package's own entry counts, else the first by its value. An
    entry that cannot be imported is left out. Both are logged as errors.
    """
    found: dict[str, Any] = {}
    extension: Any
    for extension in sorted(ExtensionManager(group), key=_order):
        if extension.name in found:
            value = extension.entry_point.value
            LOG.error("%s of %s is there already; %s is ignored", extension.name, group, value)
        else:
            found[extension.name] = extension.plugin
    return found


def _order(extension: Any) -> tuple[str, bool, str]:
    value = str(extension.entry_point.value)
    return extension.name, not value.startswith(_OWN), value
