# SPDX-License-Identifier: Apache-2.0
"""The test cloud writes into its state folder and nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import options_outside
from testcloud import configuration
from testcloud.pids import identify
from testcloud.processes import Processes
from testcloud.settings import Settings

# Options that name a place outside and that nothing here reads or writes: what they belong to is
# off. By service, "" for all.
OFF = {
    "": {
        ("oslo_middleware", "http_basic_auth_user_file"),  # authentication without Keystone
        ("os_brick", "lightos_discovery_client_dir_path"),  # another backend of Cinder
    },
    "keystone": {
        ("federation", "sso_callback_template"),
        ("jwt_tokens", "jws_private_key_repository"),  # the tokens are Fernet's
        ("jwt_tokens", "jws_public_key_repository"),
        ("saml", "certfile"),
        ("saml", "idp_metadata_path"),
        ("saml", "keyfile"),
    },
    "glance": {  # stores beside the one that is enabled
        ("cinder", "cinder_mount_point_base"),
        ("cinder", "rootwrap_config"),
        ("file", "filesystem_store_datadir"),
        ("glance_store", "cinder_mount_point_base"),
        ("glance_store", "rootwrap_config"),
    },
    "neutron": {  # agents, of which there is none
        ("agent", "kill_scripts_path"),
        ("ovn", "vhost_sock_dir"),
        ("ovn_evpn", "frr_vty_socket"),
        ("ovs", "vhostuser_socket_dir"),
    },
    "cinder": {  # backends beside the one that is enabled, and backups
        ("DEFAULT", "backup_ceph_conf"),
        ("DEFAULT", "infortrend_cli_path"),
        ("DEFAULT", "vrts_target_config"),
        *((section, "chiscsi_conf") for section in ("DEFAULT", "backend_defaults")),
        *(
            ("backend_defaults", option)
            for option in (
                *("cinder_eternus_config_file", "cinder_huawei_conf_file", "lvm_conf_file"),
                *("nexenta_shares_config", "nfs_shares_config", "vmware_tmp_dir"),
                "vzstorage_shares_config",
            )
        ),
    },
    "nova": {  # other hypervisors
        ("libvirt", "vzstorage_log_path"),
        ("vmware", "serial_log_dir"),
    },
}
# Where packages of the services keep what they write.
KEPT = ("/etc", "/var/lib", "/var/log", "/var/cache", "/run", "/opt")


@pytest.mark.parametrize("service", configuration.FILES)
def test_no_option_of_a_service_names_a_place_elsewhere(where: Settings, service: str) -> None:
    file = where.etc / service / configuration.FILES[service][1]
    done = subprocess.run(
        [
            *(str(where.venv / "bin" / "python"), "-W", "ignore", options_outside.__file__),
            *(service, str(file), str(where.state)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    found = {(section, option): value for section, option, value in json.loads(done.stdout)}

    assert {at: found[at] for at in found.keys() - OFF[""] - OFF.get(service, set())} == {}


def test_no_process_writes_to_a_file_elsewhere(where: Settings) -> None:
    written = {
        (name, path)
        for name in Processes(where).running()
        for pid in _members(where, name)
        for path in _written(pid)
        if not path.startswith((f"{where.state}/", "/dev/", "/proc/", "/memfd:"))
        # libuuid's own clock, where Debian's uuid-runtime is installed.
        and path != "/var/lib/libuuid/clock.txt"
    }

    assert written == set()


def test_no_service_has_a_folder_elsewhere_that_changed(where: Settings) -> None:
    began = where.secrets_file.stat().st_mtime
    changed = [
        str(path)
        for top in KEPT
        for service in configuration.FILES
        for path in _below(Path(top) / service)
        if path.lstat().st_mtime > began
    ]

    assert changed == []


def _members(where: Settings, name: str) -> list[int]:
    pid = Processes(where).pid(name)
    found = identify(pid) if pid is not None else None
    return found.members() if found else []


def _written(pid: int) -> Iterator[str]:
    """The files that a process has open for writing, also those without a name any more."""
    try:
        entries = list(Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:  # it ended a moment ago
        return
    for entry in entries:
        try:
            path = str(entry.readlink())
            info = Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text(encoding="ascii")
        except FileNotFoundError:  # it was closed a moment ago
            continue
        flags = next(line.split()[1] for line in info.splitlines() if line.startswith("flags:"))
        if path.startswith("/") and int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
            yield path


def _below(folder: Path) -> Iterator[Path]:
    if folder.exists():
        yield folder
        yield from folder.rglob("*")
