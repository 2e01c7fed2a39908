#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What cloud-init would do with Nova's configuration drive, as far as the guests need it.

The host's name, the addresses, and of the user data the files. Packages and commands are ignored:
the image has everything that they would install. cloud-init itself takes a minute on an emulated
processor.
"""

import json
import pathlib
import subprocess
import sys
import time
from typing import Any

DRIVES = ("/dev/sr0", "/dev/vdz")
TOP = pathlib.Path("/run/config/openstack/latest")


def run(*command: str) -> int:
    return subprocess.run(command, check=False).returncode


def drive() -> str:
    for _ in range(100):
        for device in DRIVES:
            if pathlib.Path(device).exists():
                return device
        time.sleep(0.05)
    sys.exit("there is no configuration drive")


def read(name: str) -> dict[str, Any]:
    path = TOP / name
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def addresses() -> None:
    network = read("network_data.json")
    macs = {link["id"]: link["ethernet_mac_address"] for link in network.get("links", ())}
    places = pathlib.Path("/sys/class/net").iterdir()
    names = {(place / "address").read_text().strip(): place.name for place in places}
    for each in network.get("networks", ()):
        name = names.get(macs[each["link"]])
        if name is None or each["type"] != "ipv4":
            continue
        bits = sum(bin(int(part)).count("1") for part in each["netmask"].split("."))
        run("ip", "address", "add", f"{each['ip_address']}/{bits}", "dev", name)
        run("ip", "link", "set", name, "up")


def files() -> None:
    user_data = TOP / "user_data"
    if not user_data.exists():
        return
    text = user_data.read_text()
    if not text.startswith("#cloud-config"):
        return
    sys.path.insert(0, "/usr/lib/failover-agent")
    import yaml

    for file in yaml.safe_load(text).get("write_files", ()):
        path = pathlib.Path(file["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(file.get("content", ""))
        path.chmod(int(file.get("permissions", "0644"), 8))


def main() -> None:
    pathlib.Path("/run/config").mkdir(exist_ok=True)
    if run("mount", "-t", "iso9660", "-o", "ro,mode=0500", drive(), "/run/config") != 0:
        sys.exit("the configuration drive cannot be read")
    meta = read("meta_data.json")
    instance = pathlib.Path("/run/cloud-init/.instance-id")
    instance.parent.mkdir(exist_ok=True)
    instance.write_text(meta["uuid"] + "\n")
    pathlib.Path("/proc/sys/kernel/hostname").write_text(meta["hostname"].split(".")[0])
    addresses()
    files()


main()
