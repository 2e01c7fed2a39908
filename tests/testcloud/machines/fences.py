# SPDX-License-Identifier: Apache-2.0
"""The operator's fence devices: a board for each host, and Ceph. See docs/fencing.md."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Any

import yaml

from testcloud.machines import places
from testcloud.settings import Settings, write_private

_LAN_FILE, _EMULATED_FILE = "lan.conf", "board.emu"
_LAN = """\
name "{host}"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "{control}"
  user 1 true "" "test" user 10 none md2 md5 straight
  user 2 true "{user}" "{password}" admin 10 none md2 md5 straight
"""
_EMULATED = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
mc_enable 0x20
"""


def agent_key(settings: Settings) -> Path:
    """The secret that the keys of all agents follow from."""
    return settings.etc / "mistral" / "agents.key"


def devices(settings: Settings) -> Path:
    """The file of the devices."""
    return settings.etc / "mistral" / "fence-devices.yaml"


def write(settings: Settings) -> None:
    """Write both, and what the boards read at their start; the agents' key stays what it is."""
    _write_boards(settings)
    if not agent_key(settings).exists():
        write_private(agent_key(settings), secrets.token_hex(32) + "\n")
    write_private(devices(settings), yaml.safe_dump(_devices(settings)))


def board_command(folder: Path) -> tuple[str, ...]:
    """The command that runs the IPMI board whose files are in a folder."""
    files = ("-c", str(folder / _LAN_FILE), "-f", str(folder / _EMULATED_FILE))
    return ("ipmi_sim", "-n", *files, "-s", str(folder / "state"))


def write_board(folder: Path, host: str, port: int, password: str, control: str) -> None:
    """Write the files of an IPMI board.

    :param control: the program that the board calls for the power (man ipmi_sim).
    """
    (folder / "state").mkdir(parents=True, exist_ok=True)
    user = places.BOARD_USER
    lan = _LAN.format(host=host, port=port, control=control, user=user, password=password)
    write_private(folder / _LAN_FILE, lan)
    write_private(folder / _EMULATED_FILE, _EMULATED)


def _write_boards(settings: Settings) -> None:
    write_private(places.board_password(settings), _password(settings) + "\n")
    for host in settings.hosts:
        control = f"{sys.executable} -m testcloud.machines.power {host}"
        write_board(
            places.board_files(settings, host),
            host,
            places.board_port(host),
            _password(settings),
            control,
        )


def _password(settings: Settings) -> str:
    return settings.secret("boards")[:16]  # IPMI knows no longer one


def _devices(settings: Settings) -> dict[str, Any]:
    return {
        "projects": ["*"],
        "cloud": "testcloud-admin",
        "hosts": {host: [[_board(settings, host)]] for host in settings.hosts},
        "ceph": {
            "pools": [places.POOL],
            "conf": str(places.ceph_conf(settings)),
            "keyring": str(places.keyring(settings, "fence")),
            "name": "client.fence",
            "addresses": {host: [places.storage(host)] for host in settings.hosts},
        },
    }


def _board(settings: Settings, host: str) -> dict[str, Any]:
    port = places.board_port(host)
    options = {"ip": "127.0.0.1", "ipport": port, "username": places.BOARD_USER, "lanplus": True}
    return {
        "agent": "fence_ipmilan",
        "options": {**options, "cipher": 3},
        "secrets": {"password": str(places.board_password(settings))},
    }
