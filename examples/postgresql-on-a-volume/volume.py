#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mount the volume that follows the active member, and unmount it.

    failover-volume up VOLUME DEVICE      find it, check its file system, mount it
    failover-volume down                  unmount it
    failover-volume is-up VOLUME DEVICE   exit 0: it is mounted; 1: it is not
    failover-volume is-down               exit 0: nothing is mounted; 1: something is

VOLUME is the volume's id. DEVICE is the device that Nova reports, which is used only if the disk
itself does not identify its volume. Every verb may be repeated. Other exit codes: 2 usage,
3 refused (nothing was touched), 4 it failed.

Environment:
    VOLUME_MOUNT    the mount point (default /srv/data)
    VOLUME_OPTIONS  of mount (default noatime,nodev,nosuid)
    VOLUME_FORMAT   ext4, xfs, ...: an empty volume gets this file system; default: none, it is
                    refused. For the first activation only: remove it after that
    VOLUME_OWNER    the user that owns the root of a file system that is made (default: root)
    VOLUME_KILL     yes: down ends the processes that still use the volume; default: it fails
    VOLUME_TRUST    yes: DEVICE is right even if the disk has a name of its own, as with a
                    hypervisor that does not pass the volume's id on; default: it is refused then
    VOLUME_WAIT     seconds to wait for the device, and for the processes that use the volume
                    (default 30)
    VOLUME_MODE     directory: there are no block devices. A volume is a directory that is to be had
                    as VOLUME_DEVICES/VOLUME while it is attached, and mounting it makes
                    VOLUME_MOUNT a link there: for drills on one machine
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SERIAL = 20  # characters of a volume's id that virtio-blk has room for
PAUSE = 0.1
SAMPLE = 1 << 20  # bytes at the beginning and at the end that have to be zero in a new volume
SAMPLES = 16  # further ones between these
BY_ID = Path("/dev/disk/by-id")
LINKS = ("virtio-{short}", "scsi-0QEMU_QEMU_HARDDISK_{full}", "scsi-0QEMU_QEMU_HARDDISK_{short}")

MOUNT = Path(os.path.abspath(os.environ.get("VOLUME_MOUNT", "/srv/data")))  # noqa: PTH100
WAIT = float(os.environ.get("VOLUME_WAIT", "30"))


Uses = Callable[[Path], bool]
"""Whether the target of a link in /proc is on the volume."""


class Refused(Exception):
    """Nothing was changed; an operator must look."""


class Failed(Exception):
    """The operation failed; a repeat may succeed."""


# -- block devices


class Devices:
    """Volumes as block devices."""

    def up(self, volume: str, said: str) -> None:
        device = self._found(volume, said)
        mounted = _mounts(_number(device))
        if any(where == MOUNT for _, where in mounted):
            return
        if mounted:
            raise Refused(f"{device} is mounted at {mounted[0][1]} already")
        if here := self._here():
            raise Refused(f"another device, {here}, is mounted at {MOUNT}")
        found = _file_system(device)
        kind = found or _made(device)
        self._check(device, kind)
        MOUNT.mkdir(parents=True, exist_ok=True)
        options = os.environ.get("VOLUME_OPTIONS", "noatime,nodev,nosuid")
        _run("mount", "-t", kind, "-o", options, str(device), str(MOUNT))
        if found is None:
            _give_to_owner()

    def is_up(self, volume: str, said: str) -> bool:
        device = _device(volume, said)
        return device is not None and any(at == MOUNT for _, at in _mounts(_number(device)))

    def is_down(self) -> bool:
        return self._here() is None

    def take_away(self) -> bool:
        return _try("umount", str(MOUNT), quiet=True) == 0

    def what_uses(self) -> Uses:
        number = self._here()
        # Not by the mount point itself: once it is unmounted, it is on the server's own disk.
        device = os.makedev(*map(int, number.split(":"))) if number else None
        if device == Path("/").stat().st_dev:
            raise Refused(f"{MOUNT} is on the server's own disk")
        return lambda link: link.stat().st_dev == device

    def _here(self) -> str | None:
        return next((number for number, where in _mounts() if where == MOUNT), None)

    def _found(self, volume: str, said: str) -> Path:
        patience = 0.0
        if shutil.which("udevadm"):
            _try("udevadm", "settle", f"--timeout={int(WAIT)}")
            patience = min(5.0, WAIT / 2)  # a new disk may get its name a little later
        begun = time.monotonic()
        while (device := _device(volume, said if _since(begun) >= patience else "")) is None:
            if _since(begun) > WAIT:
                raise Failed(f"volume {volume} is not visible on this server; Nova reported {said}")
            time.sleep(PAUSE)
        return device

    @staticmethod
    def _check(device: Path, kind: str) -> None:
        """Replay the journal and repair what is safe to repair."""
        code = _try("fsck", "-T", "-t", kind, "-p", str(device))
        if code not in (0, 1):  # see fsck(8): 1 is "errors were corrected"
            raise Refused(
                f"fsck of {device} ended with {code}: an operator must repair its file system; it "
                "was not mounted"
            )


def _device(volume: str, said: str) -> Path | None:
    """Return the block device that identifies itself as the volume, else the one that Nova
    reported, unless it identifies itself as another one."""
    names = {"full": volume, "short": volume[:SERIAL]}
    for link in LINKS:
        device = BY_ID / link.format(**names)
        if device.is_block_device():
            return device.resolve()
    for serial in Path("/sys/block").glob("*/serial"):
        with suppress(OSError):
            if serial.read_text().strip() in names.values():
                return Path("/dev") / serial.parent.name
    device = Path(said)
    if not device.is_absolute() or not device.is_block_device():
        return None
    device = device.resolve()
    trusted = os.environ.get("VOLUME_TRUST") == "yes"
    return device if trusted or not _is_named(device) else None


def _is_named(device: Path) -> bool:
    """Return whether a disk has a name of its own, which then is not the volume's."""
    with suppress(OSError):
        if Path("/sys/block", device.name, "serial").read_text().strip():
            return True
    return BY_ID.is_dir() and any(link.resolve() == device for link in BY_ID.iterdir())


def _number(device: Path) -> str:
    number = device.stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def _mounts(number: str | None = None) -> list[tuple[str, Path]]:
    """Return device number and mount point of what is mounted, or of the mounts of one device; see
    proc(5) about mountinfo."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        _, _, device, _, where, *_ = line.split(" ")
        if number in (None, device):
            plain = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), where)
            found.append((device, Path(plain)))
    return found


def _file_system(device: Path) -> str | None:
    """Return its kind; None if the device is empty."""
    probe = subprocess.run(
        ["blkid", "-p", "-o", "value", "-s", "TYPE", str(device)],
        capture_output=True,
        text=True,
        check=False,
    )
    kind = probe.stdout.strip()
    if kind:
        return kind
    if probe.returncode == 2 and _is_blank(device):  # see blkid(8): 2 is "nothing was found"
        return None
    raise Refused(f"{device} holds unknown data but no file system; it was not changed")


def _is_blank(device: Path) -> bool:
    """Return whether all sampled bytes are zeros. Data that blkid does not know (the middle of a
    RAID, an encrypted disk without a header, a foreign format) is still data."""
    with device.open("rb", buffering=0) as content:
        last = max(0, content.seek(0, os.SEEK_END) - SAMPLE)
        places = [last * step // (SAMPLES + 1) for step in range(SAMPLES + 2)]
        for place in places:
            content.seek(place)
            if content.read(SAMPLE).strip(b"\0"):
                return False
    return True


def _made(device: Path) -> str:
    kind = os.environ.get("VOLUME_FORMAT", "")
    if not re.fullmatch(r"[a-z0-9]+", kind):
        raise Refused(f"there is no file system on {device}, and VOLUME_FORMAT does not name one")
    owner, options = os.environ.get("VOLUME_OWNER"), ["-q"]
    if owner and kind in ("ext2", "ext3", "ext4"):  # in one step with the file system itself
        user = pwd.getpwnam(owner)
        options += ["-E", f"root_owner={user.pw_uid}:{user.pw_gid}"]
    _run(f"mkfs.{kind}", *options, str(device))
    return kind


def _give_to_owner() -> None:
    """Only a new file system: an existing root may have its owner for a reason."""
    owner = os.environ.get("VOLUME_OWNER")
    if owner and MOUNT.stat().st_uid == 0:
        shutil.chown(MOUNT, owner)


# -- directories


class Directories:
    """Volumes as directories, see VOLUME_MODE."""

    def up(self, volume: str, said: str) -> None:
        del said
        source = self._source(volume)
        deadline = time.monotonic() + WAIT
        while not source.is_dir():
            if time.monotonic() > deadline:
                raise Failed(f"volume {volume} is not visible on this server")
            time.sleep(PAUSE)
        if MOUNT.is_symlink():
            if MOUNT.readlink() != source:
                raise Refused(f"another volume, {MOUNT.readlink().name}, is at {MOUNT}")
            return
        MOUNT.parent.mkdir(parents=True, exist_ok=True)
        MOUNT.symlink_to(source)

    def is_up(self, volume: str, said: str) -> bool:
        del said
        source = self._source(volume)
        return source.is_dir() and MOUNT.is_symlink() and MOUNT.readlink() == source

    def is_down(self) -> bool:
        return not MOUNT.is_symlink()

    def take_away(self) -> bool:
        if _users(self.what_uses()):
            return False
        MOUNT.unlink(missing_ok=True)
        return True

    def what_uses(self) -> Uses:
        volume = MOUNT.resolve()
        return lambda link: link.resolve().is_relative_to(volume)

    @staticmethod
    def _source(volume: str) -> Path:
        return Path(os.environ["VOLUME_DEVICES"]) / volume


# -- both

Mode = Devices | Directories


def down(mode: Mode) -> None:
    """Unmount; end the processes that use the volume, if that is allowed."""
    # First politely. Never umount --lazy: processes could still write to the volume.
    kill = os.environ.get("VOLUME_KILL") == "yes"
    signals = (signal.SIGTERM, signal.SIGKILL) if kill else (None,)
    uses, users = mode.what_uses(), []
    for number in signals:
        begun = None  # the time counts from the first signal: to look may take seconds
        while not mode.is_down() and not mode.take_away():
            if begun is not None and _since(begun) > WAIT / len(signals):
                break
            users = _users(uses)
            begun = begun or time.monotonic()
            for pid in users:
                if number is not None:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
            time.sleep(PAUSE)
        else:
            return
    named = ", ".join(f"{pid} ({_name(pid)})" for pid in users)
    raise Failed(f"{MOUNT} is still in use, by {named or 'an unknown process'}")


def _users(uses: Uses) -> list[int]:
    """The processes that have a file of the volume open, run from it, or work in it."""
    found = [int(process.name) for process in Path("/proc").glob("[0-9]*")]
    return [pid for pid in found if pid != os.getpid() and _any_use(pid, uses)]


def _any_use(pid: int, uses: Uses) -> bool:
    process = Path(f"/proc/{pid}")
    links = [process / "cwd", process / "root", process / "exe"]
    with suppress(OSError):
        links += list((process / "fd").iterdir())
    for link in links:
        with suppress(OSError):  # it has just ended or been closed, or it is not visible to us
            if uses(link):
                return True
    return False


def _since(begun: float) -> float:
    return time.monotonic() - begun


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return "ended"


def _run(*argv: str) -> None:
    code = _try(*argv)
    if code != 0:
        raise Failed(f"{argv[0]} ended with {code}")


def _try(*argv: str, quiet: bool = False) -> int:
    """Return the exit code; its output goes where our own errors go."""
    said = subprocess.DEVNULL if quiet else sys.stderr
    try:
        # It inherits the lock: if only this process is killed, no other one begins before it ends.
        done = subprocess.run(list(argv), stdout=said, stderr=said, close_fds=False, check=False)
        return done.returncode
    except FileNotFoundError:
        raise Failed(f"{argv[0]} is missing on this server") from None


@contextmanager
def _alone() -> Iterator[None]:
    """Only one at a time."""
    MOUNT.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(f"{MOUNT}.lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    os.set_inheritable(handle, True)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def main(argv: list[str]) -> int:
    """See the module's text."""
    mode: Mode = Directories() if os.environ.get("VOLUME_MODE") == "directory" else Devices()
    try:
        verb, *about = argv or [""]
        about_a_volume = len(about) == 2 and re.fullmatch(r"[\w-]+", about[0])
        if verb == "up" and about_a_volume:
            with _alone():
                mode.up(*about)
        elif verb == "is-up" and about_a_volume:
            return 0 if mode.is_up(*about) else 1
        elif argv == ["down"]:
            with _alone():
                down(mode)
        elif argv == ["is-down"]:
            return 0 if mode.is_down() else 1
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except Refused as error:
        print(f"refused: {error}", file=sys.stderr)
        return 3
    except (Failed, OSError, KeyError) as error:  # KeyError: VOLUME_OWNER, of no user
        print(f"failed: {error}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
