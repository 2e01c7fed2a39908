# SPDX-License-Identifier: Apache-2.0
"""The guests' image: Debian with PostgreSQL and the agent, its kernel and a ramdisk.

Built from Debian's packages and the agent's, which this checkout makes. The root file system is an
ext4 without partitions; the kernel is booted directly, so there is no boot loader. What cloud-init
and systemd would do, `guest/init` does within seconds: an emulated processor needs a minute.
"""

from __future__ import annotations

import gzip
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from testcloud import hashes, package_archive, packages
from testcloud.machines.commands import run
from testcloud.settings import HERE, ROOT, Settings

GUEST = HERE / "machines" / "guest"
SUITE = "bookworm"
CONTENT = (
    *("python3", "python3-minimal", "libpython3-stdlib", "postgresql-15"),
    *("e2fsprogs", "iproute2", "udev", "kmod", "busybox", "procps", "acpid", "qemu-guest-agent"),
)
MODULES = (
    *("virtio_pci", "virtio_blk", "virtio_net", "virtio_scsi", "virtio_console", "virtio_rng"),
    *("sr_mod", "isofs", "ext4", "button", "evdev"),
)
_UNNEEDED = (
    *("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"),
    *("/usr/lib/x86_64-linux-gnu/libLLVM*", "/usr/lib/llvm*"),
    "/usr/lib/postgresql/15/lib/bitcode/*",
)
_NO_CLUSTER = (
    'mkdir -p "$1/etc/postgresql-common"; '
    'echo "create_main_cluster = false" > "$1/etc/postgresql-common/createcluster.conf"'
)
_PROGRAMS = "usr/lib/postgresql/15/bin"
_BUILD = 1800.0
"""Seconds for one step of the build, downloads included, beside other work."""


def folder(settings: Settings) -> Path:
    """Where the image is: beside the services' environment, for every cloud of this state."""
    return settings.shared / "image"


def kernel(settings: Settings) -> Path:
    """The guests' kernel."""
    return folder(settings) / "vmlinuz"


def ramdisk(settings: Settings) -> Path:
    """What the kernel unpacks first."""
    return folder(settings) / "initrd.gz"


def root(settings: Settings) -> Path:
    """The root file system, qcow2."""
    return folder(settings) / "root.qcow2"


def key() -> str:
    """A hash of everything that the image is made of, but for the versions of the packages."""
    names = ("agent_deb.py", "agent_files.py", "wheels.py", "agent", "debian")
    package = [ROOT / "deploy" / name for name in names]
    return hashes.of_files([Path(__file__), GUEST, *package], package_archive.key())


def build(settings: Settings, tell: Callable[[str, float | None], None]) -> None:
    """Build what is missing or old. Debian's part is kept until its list of packages changes.

    :raises CloudError: COMMAND_FAILED, INSTALL_FAILED.
    """
    here = folder(settings)
    if hashes.stamped(here / "made", key()) and root(settings).exists():
        return
    begun = time.monotonic()
    here.mkdir(parents=True, exist_ok=True)
    base, linux = here / "base.tar", here / "linux"
    wanted = " ".join((SUITE, *CONTENT))
    if not hashes.stamped(here / "base", wanted) or not base.exists():
        tell("building the guests' image", None)
        _debian(base)
        _kernel(linux)
        hashes.stamp_with(here / "base", wanted)
        tell("Debian for the guests", time.monotonic() - begun)
        begun = time.monotonic()
    _ramdisk(settings, linux)
    _root(settings, base)
    hashes.stamp_with(here / "made", key())
    tell("image of the guests", time.monotonic() - begun)


def _debian(base: Path) -> None:
    part = base.with_suffix(".part.tar")
    run(
        *("mmdebstrap", "--variant=minbase", "--mode=root", "--quiet"),
        *(f"--include={','.join(CONTENT)}", "--aptopt=APT::Install-Recommends false"),
        *("--aptopt=Acquire::Languages none", *(f"--dpkgopt=path-exclude={p}" for p in _UNNEEDED)),
        f"--essential-hook={_NO_CLUSTER}",
        '--customize-hook=rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin',
        *(SUITE, part),
        limit=_BUILD,
    )
    part.replace(base)


def _kernel(linux: Path) -> None:
    """Debian's kernel for clouds, unpacked here: it is not installed on this machine."""
    shutil.rmtree(linux, ignore_errors=True)
    linux.mkdir()
    meta = run("apt-cache", "show", "--no-all-versions", "linux-image-cloud-amd64")
    found = re.search(r"linux-image-[0-9][^ ,]*-cloud-amd64", meta)
    name = found.group() if found else "linux-image-cloud-amd64"
    run("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", name, folder=linux, limit=300)
    run("dpkg-deb", "-x", next(linux.glob("*.deb")), linux / "root", limit=120)
    next(linux.glob("*.deb")).unlink()


def _ramdisk(settings: Settings, linux: Path) -> None:
    version = next((linux / "root" / "lib" / "modules").iterdir()).name
    shutil.copy(linux / "root" / "boot" / f"vmlinuz-{version}", kernel(settings))
    run("depmod", "-b", linux / "root", version)
    top = folder(settings) / "ramdisk"
    shutil.rmtree(top, ignore_errors=True)
    for name in ("bin", "proc", "sys", "dev", "new", "modules"):
        (top / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", top / "bin" / "busybox")
    names: list[str] = []
    for module in MODULES:
        shown = run("modprobe", "-d", linux / "root", "-S", version, "--show-depends", module)
        for line in shown.splitlines():
            kind, _, path = line.partition(" ")
            file = Path(path.split()[0])
            if kind == "insmod" and file.name not in names:
                names.append(file.name)
                shutil.copy(file, top / "modules")
    (top / "modules" / "list").write_text("\n".join(names) + "\n", encoding="ascii")
    shutil.copy(GUEST / "ramdisk-init", top / "init")
    (top / "init").chmod(0o755)
    listed = "\n".join(str(p.relative_to(top)) for p in sorted(top.rglob("*")))
    archive = folder(settings) / "initrd"
    run("cpio", "-o", "-H", "newc", "--quiet", "-F", archive, given=listed, folder=top)
    ramdisk(settings).write_bytes(gzip.compress(archive.read_bytes(), 6))
    archive.unlink()
    shutil.rmtree(top)


def _root(settings: Settings, base: Path) -> None:
    with packages.build_folder(settings) as place:
        top = place / "root"
        top.mkdir()
        run("tar", "-C", top, "-xf", base, limit=120)
        _install_agent(settings, top, place)
        _make_cluster(top)
        examples = ROOT / "examples" / "postgresql-on-a-volume"
        for source, target in (
            (GUEST / "init", "sbin/guest-init"),
            (GUEST / "configure.py", "usr/sbin/guest-configure"),
            (GUEST / "shutdown", "sbin/shutdown"),
            (GUEST / "initdb", f"{_PROGRAMS}/initdb"),
            (examples / "volume.py", "usr/local/sbin/failover-volume"),
            (examples / "postgresql.sh", "usr/local/sbin/failover-postgresql"),
        ):
            run("install", "-D", "-m", "0755", source, top / target)
        power = top / "etc" / "acpi" / "events" / "power"
        power.parent.mkdir(parents=True, exist_ok=True)
        power.write_text("event=button/power.*\naction=/sbin/shutdown\n", encoding="ascii")
        disk = place / "root.ext4"
        features = ("-L", "root", "-O", "^has_journal,^metadata_csum", "-m", "0", "-d", top)
        run("mke2fs", "-q", "-t", "ext4", *features, disk, "1G", limit=120)
        made = root(settings).with_suffix(".new")
        run("qemu-img", "convert", "-O", "qcow2", disk, made, limit=120)
        made.replace(root(settings))


def _install_agent(settings: Settings, top: Path, place: Path) -> None:
    """Install the agent as an operator does. The package compiles its modules, which an emulated
    processor would need seconds for."""
    here = {"TMPDIR": str(place), "PYTHONPATH": str(ROOT)}
    packages.run([sys.executable, "-m", "deploy.agent_deb", str(place)], settings, here)
    package = next(place.glob("failover-agent_*.deb"))
    inside = top / package.name
    shutil.copy(package, inside)
    run("chroot", top, "dpkg", "--install", f"/{package.name}", limit=120)
    inside.unlink()


def _make_cluster(top: Path) -> None:
    """Make the database cluster that `guest/initdb` copies to a volume."""
    cluster, memory = "usr/share/postgresql/cluster", top / "dev" / "shm"
    memory.mkdir(exist_ok=True)
    memory.chmod(0o1777)
    run("chroot", top, "install", "-d", "-o", "postgres", "-m", "0700", f"/{cluster}")
    user = ("chroot", "--userspec=postgres:postgres", top, "env", "LC_ALL=C")
    run(*user, f"/{_PROGRAMS}/initdb", f"--pgdata=/{cluster}", "--auth=peer", "--encoding=UTF8")
