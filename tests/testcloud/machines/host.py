# SPDX-License-Identifier: Apache-2.0
"""A compute host: process, mount, name and network namespaces of its own.

libvirtd, nova-compute and the guests run in there, below this program, which is process 1 of the
host. To kill it is to cut the power: everything of the host is gone at that instant, in some 10 ms.
It mounts nothing over what others of this machine see.

``python -m testcloud.machines.host NAME`` is started in the host's namespaces
(`tests/testcloud/service_processes.py`); it is of no use elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import NoReturn

from testcloud import service_processes, settings
from testcloud.configuration import compute_file
from testcloud.errors import CloudError
from testcloud.machines import ceph, network, places
from testcloud.machines.commands import run
from testcloud.processes import Processes
from testcloud.serving import program
from testcloud.settings import Settings

_HERE = {
    "lib": "/var/lib/libvirt",
    "cache": "/var/cache/libvirt",
    "log": "/var/log/libvirt",
    "etc": "/etc/libvirt",
}
_LIBVIRTD = """\
auth_unix_rw = "none"
unix_sock_rw_perms = "0700"
log_outputs = "2:stderr"
host_uuid = "{host_uuid}"
"""
_QEMU = """\
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
"""
_SECRET_XML = f"""\
<secret ephemeral="no" private="yes"><uuid>{places.CEPH_KEY_ID}</uuid>
<usage type="ceph"><name>client.cinder secret</name></usage></secret>
"""


def inside(where: Settings, host: str, *words: str) -> str:
    """Run a command on a host.

    :raises CloudError: NO_POWER, COMMAND_FAILED.
    """
    pid = Processes(where).pid(places.process(host))
    try:
        first = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()[0]
    except (OSError, IndexError):
        raise CloudError("NO_POWER", f"{host} has no power.", f"power on {host}") from None
    return run(
        *("nsenter", "--target", first, "--mount", "--pid", "--uts", "--ipc", "--net", "--"),
        *words,
        limit=30,
    )


def main(host: str) -> None:
    """Be process 1 of a host until the power is cut.

    It does nothing but collect those whose parents ended, as an init does. libvirtd asks each
    QEMU what it can do, and kills it; until that one is collected, libvirtd waits, for 40 s.
    """
    where = settings.load()
    _mount(where, host)
    services = os.fork()
    if services == 0:
        _serve(where, host)
    while True:
        ended, status = os.wait()
        if ended == services:
            sys.exit(os.waitstatus_to_exitcode(status))


def _serve(where: Settings, host: str) -> NoReturn:
    """Start the host's services, and end with nova-compute."""
    _remove_old_taps()
    threading.Thread(target=_plug_taps, daemon=True).start()
    own = {**service_processes.environment(where), "HOME": str(where.etc / "home")}
    # Their output goes to this process's log. The default of the file, in /run, is shared by hosts.
    libvirtd = ["libvirtd", "--pid-file", "/run/libvirt/libvirtd.pid"]
    subprocess.Popen(libvirtd, env=own, stdin=subprocess.DEVNULL)
    _wait_for_libvirt()
    _define_secret(where)
    compute = [str(where.venv / "bin" / "nova-compute")]
    compute += ["--config-file", str(compute_file(where, host))]
    sys.exit(subprocess.run(compute, env=own, stdin=subprocess.DEVNULL, check=False).returncode)


def _mount(where: Settings, host: str) -> None:
    socket.sethostname(host)
    own = places.disk(where, host)
    # Nova looks into /sys/class/net: it has to be that of this network namespace.
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    Path("/run/libvirt").mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "none", "/run/libvirt")
    for part, place in _HERE.items():
        (own / part).mkdir(parents=True, exist_ok=True)
        Path(place).mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", own / part, place)
    places.instances(where, host).mkdir(parents=True, exist_ok=True)
    identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{host}.{where.state}")
    (own / "etc" / "libvirtd.conf").write_text(_LIBVIRTD.format(host_uuid=identity))
    (own / "etc" / "qemu.conf").write_text(_QEMU)
    # libvirt wants this user, also where qemu.conf names another one. Debian makes it only with
    # systemd's units of libvirt.
    for file, line in (
        ("passwd", "libvirt-qemu:x:64055:64055::/nonexistent:/bin/false"),
        ("group", "libvirt-qemu:x:64055:"),
    ):
        copy = own / file
        shutil.copy(f"/etc/{file}", copy)
        if "libvirt-qemu:" not in copy.read_text():
            with copy.open("a") as added:
                added.write(line + "\n")
        run("mount", "--bind", copy, f"/etc/{file}")


def _remove_old_taps() -> None:
    """A power loss leaves them, because the network namespace lives on."""
    for line in run("ip", "-brief", "link").splitlines():
        if line.startswith("tap"):
            run("ip", "link", "del", line.split()[0].partition("@")[0])


def _plug_taps() -> None:
    """Put each tap that Nova makes into the guests' bridge, as an agent of Neutron would."""
    with subprocess.Popen(
        [program("ip"), "-oneline", "monitor", "link"], stdout=subprocess.PIPE, text=True
    ) as monitor:
        for line in monitor.stdout or ():
            found = re.match(r"\d+: (tap[0-9a-f-]+):", line)
            if found and " master " not in line:
                with contextlib.suppress(CloudError):  # it may be gone already
                    run("ip", "link", "set", found.group(1), "master", network.GUESTS, "up")


def _wait_for_libvirt() -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            run("virsh", "-q", "-c", places.URI, "uri")
        except CloudError as error:
            if time.monotonic() > deadline:
                sys.exit(f"libvirtd does not answer: {error}")
            time.sleep(0.1)
        else:
            return


def _define_secret(where: Settings) -> None:
    run("virsh", "-q", "-c", places.URI, "secret-define", "/dev/stdin", given=_SECRET_XML)
    run(
        *(
            "virsh",
            "-q",
            "-c",
            places.URI,
            "secret-set-value",
            places.CEPH_KEY_ID,
            "--file",
            "/dev/stdin",
        ),
        given=ceph.key(where, "cinder"),
    )


if __name__ == "__main__":
    main(sys.argv[1])
