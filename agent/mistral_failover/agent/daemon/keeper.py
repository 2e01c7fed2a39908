# SPDX-License-Identifier: Apache-2.0
"""The first process of a rehearsal's isolation: it arranges it, and ends with it.

``unshare`` starts it as process 1 of a process namespace, by ``python -I -S``, and the agent sends
this text over its standard input, so it needs the standard library alone. It ends when its standard
input does, that is, when the agent ends it or dies, and the kernel then kills every process of the
namespace. Its arguments are the folders of which the isolation gets empty ones with the same
subfolders.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import signal
import socket
import struct
import sys
from contextlib import suppress

READY = b"ready\n"
_DEPTH = 3  # levels of subfolders to make again
_MOST = 2000  # subfolders of one folder to make again
_FLAGS = 2 | 4  # MS_NOSUID, MS_NODEV
_ELSEWHERE = frozenset(
    b"nfs nfs4 cifs smb3 ceph glusterfs fuse.glusterfs fuse.sshfs fuse.ceph 9p afs lustre gpfs"
    b" ocfs2 gfs2 beegfs".split()
)
_GET, _SET = 0x8913, 0x8914  # SIOCGIFFLAGS, SIOCSIFFLAGS
_REQUEST = "16sH14x"  # struct ifreq


def main(private: list[str]) -> None:
    """Arrange the isolation, say READY or why that failed, and wait for the end."""
    signal.signal(signal.SIGCHLD, _reap)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        _start_loopback()
        _leave_network_disks()
        for folder in private:
            _hide(folder)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("-1000")  # a rehearsal that needs too much memory loses another process
        said = READY
    except OSError as error:
        said = f"{error}\n".encode()
    with suppress(OSError):
        os.write(1, said)
    if said == READY:
        with suppress(OSError):
            while os.read(0, 1):
                pass
    os._exit(0)


def _start_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack(_REQUEST, b"lo", 0)
        _, flags = struct.unpack(_REQUEST, fcntl.ioctl(any_socket, _GET, asked))
        fcntl.ioctl(any_socket, _SET, struct.pack(_REQUEST, b"lo", flags | 1))  # IFF_UP


def _leave_network_disks() -> None:
    """Unmount, inside, what is on other machines: it is reached without the network of the
    namespace, and no copy of it is made."""
    with open("/proc/self/mountinfo", "rb") as file:
        lines = file.read().splitlines()
    for line in reversed(lines):
        before, _, after = line.partition(b" - ")
        place = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), before.split(b" ")[4])
        is_needed = place in (b"/", b"/usr") or place.startswith((b"/usr/", b"/proc", b"/sys"))
        if after.split(b" ")[0] in _ELSEWHERE and not is_needed:
            ctypes.CDLL(None).umount2(place, 2)  # MNT_DETACH


def _hide(folder: str) -> None:
    """Mount an empty file system in memory on a folder, and make its subfolders again: what is in
    them, as sockets of services, locks and mails to send, belongs to the real system."""
    place = os.path.realpath(folder)
    if not os.path.isdir(place):
        return
    kept = [("", os.stat(place))]
    device = kept[0][1].st_dev
    for path, names, _ in os.walk(place):
        depth = len(os.path.relpath(path, place).split(os.sep)) if path != place else 0
        found = []
        for name in sorted(names):
            with suppress(OSError):
                is_like = os.lstat(os.path.join(path, name))
                if is_like.st_dev == device and len(kept) < _MOST:
                    found.append(name)
                    kept.append((os.path.relpath(os.path.join(path, name), place), is_like))
        names[:] = found if depth + 1 < _DEPTH else []
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", _FLAGS, b"mode=755"):
        raise OSError(ctypes.get_errno(), f"mount: {os.strerror(ctypes.get_errno())}", place)
    for name, is_like in kept:
        path = os.path.join(place, name) if name else place
        if name:
            os.mkdir(path, 0o700)
        os.chown(path, is_like.st_uid, is_like.st_gid)
        mode = is_like.st_mode & 0o7777
        try:
            os.chmod(path, mode)
        except PermissionError:  # the agent's unit may forbid to set the bits for user and group
            os.chmod(path, mode & 0o1777)


def _reap(*_: object) -> None:
    """Take the exit codes of the processes that lost their parents."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
