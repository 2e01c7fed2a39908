# SPDX-License-Identifier: Apache-2.0
"""Writes what the services read at their start, below ``etc`` of the state folder.

``etc/home`` is the home directory of every process: oslo.config looks for
``~/.nova/nova.conf``, also in the WSGI modules that take no command line.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from testcloud import ini
from testcloud.control_plane import glance, keystone, neutron, placement
from testcloud.instances import cinder, nova, nova_compute
from testcloud.machines import fences
from testcloud.orchestration import aodh, ceilometer, heat, mistral
from testcloud.settings import Settings, write_private

FILES = {
    "keystone": (keystone, "keystone.conf"),
    "placement": (placement, "placement.conf"),
    "glance": (glance, "glance-api.conf"),
    "neutron": (neutron, "neutron.conf"),
    "nova": (nova, "nova.conf"),
    "cinder": (cinder, "cinder.conf"),
    "heat": (heat, "heat.conf"),
    "mistral": (mistral, "mistral.conf"),
    "aodh": (aodh, "aodh.conf"),
    "ceilometer": (ceilometer, "ceilometer.conf"),
}
# What a service brings along and wants to find beside its own file.
_BROUGHT = ("glance", "neutron", "nova", "cinder", "heat")
# Every process has one log: what it writes on its standard error.
_LOGGING: ini.Sections = {"DEFAULT": {"use_stderr": True}}
_EVENTS = """\
---
sources:
  - name: events
    events: ["*"]
    sinks: [alarms]
sinks:
  - name: alarms
    publishers: ["notifier://?topic=alarm.all"]
"""
_NO_METERS = "---\nsources: []\nsinks: []\n"


def write(settings: Settings) -> None:
    """Write all files anew; they hold passwords, so only their owner may read them."""
    home = settings.etc / "home"
    home.mkdir(parents=True, exist_ok=True)
    for folder in (settings.etc, settings.data):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
    for folder in (settings.log, settings.temporary):
        folder.mkdir(exist_ok=True)
    for name, (sections, file) in FILES.items():
        folder = settings.etc / name
        folder.mkdir(exist_ok=True)
        (settings.data / name).mkdir(parents=True, exist_ok=True)
        if name in _BROUGHT:
            shutil.copytree(settings.venv / "etc" / name, folder, dirs_exist_ok=True)
        write_private(folder / file, ini.text(ini.merged(_LOGGING, sections(settings))))
        link = home / f".{name}"
        link.unlink(missing_ok=True)
        link.symlink_to(Path("..") / name)
    if settings.machines:
        fences.write(settings)
    for host in settings.hosts:
        (settings.data / "nova" / host / "instances").mkdir(parents=True, exist_ok=True)
        write_private(
            compute_file(settings, host),
            ini.text(ini.merged(_LOGGING, nova_compute(settings, host))),
        )
    (settings.etc / "heat" / "plugins").mkdir(exist_ok=True)
    for name, text in (("event_pipeline.yaml", _EVENTS), ("pipeline.yaml", _NO_METERS)):
        write_private(settings.etc / "ceilometer" / name, text)


def compute_file(settings: Settings, host: str) -> Path:
    """The file of one hypervisor's nova-compute."""
    return settings.etc / "nova" / f"nova-{host}.conf"
