# SPDX-License-Identifier: Apache-2.0
"""Options of oslo.config that name a path outside of a folder, whether they are set or not.

A script, since each service's options are known to the Python that it is installed in alone:
``python options_outside.py SERVICE FILE FOLDER...`` prints a JSON list of [section, option, value].
SERVICE is the beginning of its namespaces, FILE its configuration, FOLDERs are inside. It runs in
one process for each service: two services register options of one name in different ways.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any
from unittest.mock import MagicMock

from oslo_config import cfg

LIBRARIES = ("oslo.", "keystonemiddleware.", "os_brick", "os_vif", "osprofiler", "cotyledon")
_PATH = re.compile(r"(?:^|(?<=[\s='\"\[:,]))(?:~|//?)[\w./~-]+")
# Nothing of the machine's own is below these but programs, devices and libraries.
_HARMLESS = ("/dev/", "/proc/", "/sys/", "/usr/", "/bin/", "/sbin/", "/lib/")
_KEPT = re.compile(r"^/(etc|var|tmp|run|opt|home|root|srv|mnt|media)(/|$)|^~")


def main(service: str, file: str, *folders: str) -> list[tuple[str, str, str]]:
    """The options of a service whose paths are outside of the folders."""
    conf = cfg.ConfigOpts()
    conf(["--config-file", file], project=service, default_config_dirs=[])
    for name, entry in {e.name: e for e in entry_points(group="oslo.config.opts")}.items():
        if name.startswith((service, *LIBRARIES)):
            for group, options in _listed(entry):
                for option in options:
                    _register(conf, getattr(group, "name", group), option)
    return sorted(
        (section, option, value)
        for section, option, value in _values(conf)
        if any(_outside(path, folders) for path in _PATH.findall(value))
    )


def _listed(entry: EntryPoint) -> Any:
    """What a namespace lists; a library that only a driver needs may be missing."""
    while True:
        try:
            return entry.load()()
        except ModuleNotFoundError as error:
            if not error.name or error.name in sys.modules:
                raise
            sys.modules[error.name] = MagicMock()


def _register(conf: cfg.ConfigOpts, group: str | None, option: cfg.Opt) -> None:
    with contextlib.suppress(cfg.DuplicateOptError):  # listed twice, in two forms
        conf.register_opt(option, group=None if group == "DEFAULT" else group)


def _values(conf: Any) -> Iterator[tuple[str, str, str]]:
    sections = {None: conf._opts, **{name: g._opts for name, g in conf._groups.items()}}
    for section, options in sections.items():
        for option in options:
            if (section, option) == (None, "config_file"):
                continue
            with contextlib.suppress(ValueError, cfg.Error):  # required and not set
                value = conf[section][option] if section else conf[option]
                yield section or "DEFAULT", option, str(value)


def _outside(path: str, folders: Sequence[str]) -> bool:
    if path.startswith("//") or path.startswith(_HARMLESS):  # the rest of a URL
        return False
    return bool(_KEPT.match(path)) and not path.startswith(tuple(folders))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(*sys.argv[1:])))
