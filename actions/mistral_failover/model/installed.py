# SPDX-License-Identifier: Apache-2.0
"""Extensions from installed packages: rungs, resource types and alarm sources.

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
    """Return the objects of the entry points of ``group``, by name. The result is cached.

    This package's own come first, then the others by name. If two use one name, the first counts.
    An entry that cannot be imported is left out. Both are logged as errors.
    """
    found: dict[str, Any] = {}
    extension: Any
    for extension in sorted(ExtensionManager(group), key=_order):
        if extension.name in found:
            value = extension.entry_point.value
            LOG.error("%s of %s is defined twice; %s is ignored", extension.name, group, value)
        else:
            found[extension.name] = extension.plugin
    return found


def _order(extension: Any) -> tuple[bool, str, str]:
    value = str(extension.entry_point.value)
    return not value.startswith(_OWN), extension.name, value
