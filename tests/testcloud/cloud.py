# SPDX-License-Identifier: Apache-2.0
"""Brings the whole cloud up and down."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from testcloud import (
    access,
    configuration,
    databases,
    hashes,
    identity,
    infrastructure,
    package_archive,
    packages,
    readiness,
    saved_databases,
    seed,
    service_processes,
    serving,
)
from testcloud.errors import CloudError
from testcloud.machines import ceph, image, network, power
from testcloud.plan import Step, carry_out
from testcloud.processes import Processes
from testcloud.settings import Settings

Tell = Callable[[str, float | None], None]
"""Told what was done and the seconds it took."""

NEEDED = 3 << 30
"""Bytes that must be free on the disk."""
_TOOLS_AT_ONCE = 6
"""Schema tools keep a core busy each; with all at once the longest chain would be the last."""
_OF_CEPH = ("ceph", "cinder", "hosts")
"""Services that start when Ceph serves."""
_WIPED = ("data", "etc", "run", "log", "tmp", "secrets.json", "clouds.yaml")


def up(settings: Settings, tell: Tell) -> bool:
    """Start what does not run; the first time install and initialise it. False: all ran already.

    :raises CloudError: what is in the way.
    """
    with alone(settings):
        install(settings, tell)
        if settings.machines:
            # Only now: packages come from outside.
            network.up(settings)
            network.enter(settings)
        check_ports(settings)
        return _start(settings, tell)


def install(settings: Settings, tell: Tell) -> None:
    """Install what is missing, and build the image of real guests; start nothing.

    :raises CloudError: what is in the way.
    """
    check_disk(settings)
    with installing(settings):
        packages.install_programs(settings, lambda what: tell(what, None))
        jobs = [_install_services, *([image.build] if settings.machines else [])]
        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(job, settings, tell) for job in jobs]:
                done.result()


def _install_services(settings: Settings, tell: Tell) -> None:
    begun = time.monotonic()
    packages.install_services(settings, lambda what: tell(what, None))
    if not package_archive.installed(settings):
        package_archive.install(settings)
        tell("pack installed", time.monotonic() - begun)


def down(settings: Settings, *, wipe: bool = False) -> None:
    """Stop everything, the infrastructure last; nothing is left running.

    `wipe`: remove all that the cloud has kept, but for the environment and the saved databases.
    """
    with alone(settings):
        processes = Processes(settings)
        if settings.machines:
            for host in settings.hosts:
                power.off(settings, host)
        first = [
            n
            for n in processes.running()
            if n not in (*service_processes.INFRASTRUCTURE, "ceph-mon")
        ]
        processes.stop_all(first)
        processes.stop("ceph-mon")  # an OSD that has lost it does not end
        infra = [n for n in processes.running() if n in service_processes.INFRASTRUCTURE]
        processes.stop_all((n for n in infra if n != "epmd"), grace=60)
        processes.stop_all(["epmd"])
        if wipe:
            for name in _WIPED:
                path = settings.state / name
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            settings.forget_secrets()
        if settings.machines:
            network.down(settings)


def start(settings: Settings, names: Iterable[str]) -> list[str]:
    """Start processes, or all of a service, and return whose did not run; does not wait for them.

    :raises CloudError: NO_SUCH_PROCESS, NOT_INITIALISED.
    """
    if not _initialised(settings):
        raise CloudError("NOT_INITIALISED", "There is no cloud yet.", "make cloud-up")
    if settings.machines:
        network.enter(settings)
    begin = {
        "mariadb": infrastructure.start_mariadb,
        "rabbitmq": infrastructure.start_rabbitmq,
        "epmd": infrastructure.start_rabbitmq,
        "memcached": infrastructure.start_memcached,
    }
    started = []
    for name in resolve(settings, names):
        ran = Processes(settings).find(name) is not None
        if name in begin:
            begin[name](settings)
        else:
            service_processes.start(settings, name)
        if not ran:
            started.append(name)
    return started


def stop(settings: Settings, names: Iterable[str], *, kill: bool = False) -> list[str]:
    """Stop processes, or all of a service, and return whose ran; `kill`: as a crash would.

    :raises CloudError: NO_SUCH_PROCESS.
    """
    processes = Processes(settings)
    return [name for name in resolve(settings, names) if processes.stop(name, kill=kill)]


def resolve(settings: Settings, names: Iterable[str]) -> list[str]:
    """The processes that names of processes and services stand for.

    :raises CloudError: NO_SUCH_PROCESS.
    """
    known = service_processes.services(settings)
    found = []
    for name in names:
        those = [p.name for p in known if p.name == name] or [
            p.name for p in known if p.service == name
        ]
        if not those and name in service_processes.INFRASTRUCTURE:
            those = [name]
        if not those:
            what = [*service_processes.INFRASTRUCTURE, *(p.name for p in known)]
            raise CloudError(
                "NO_SUCH_PROCESS", f"There is no process {name}.", f"One of {', '.join(what)}."
            )
        found += those
    return found


def _start(settings: Settings, tell: Tell) -> bool:
    processes = Processes(settings)
    wanted = service_processes.services(settings)
    renew = [p.name for p in wanted if p.service in ("mistral", "guests")]
    if _initialised(settings) and not package_archive.populated(settings):
        processes.stop_all(renew)
    missing = [p.name for p in wanted if processes.find(p.name) is None]
    infra = [n for n in service_processes.INFRASTRUCTURE if processes.find(n) is None]
    if not missing and not infra and _initialised(settings):
        return False
    first = not _initialised(settings)
    saved = first and saved_databases.exist(settings)
    if first:
        _fresh(settings, processes)
        if saved:
            begun = time.monotonic()
            saved_databases.restore(settings)
            tell("saved databases unpacked", time.monotonic() - begun)
    configuration.write(settings)
    access.write_clouds_yaml(settings)
    if first and not saved:
        carry_out(schema_steps(settings), tell, at_once=_TOOLS_AT_ONCE)
        begun = time.monotonic()
        processes.stop("mariadb", grace=60)
        saved_databases.save(settings)
        tell("databases saved", time.monotonic() - begun)
    if first:
        carry_out(account_steps(settings), tell)
        hashes.stamp_with(_initialised_stamp(settings), "yes")
    carry_out(steps(settings), tell)
    return True


def schema_steps(settings: Settings) -> list[Step]:
    """What is done once for clouds of both kinds: the schemas, and the package's workflows."""
    return [
        Step("mariadb", lambda: infrastructure.start_mariadb(settings)),
        Step("databases", lambda: infrastructure.create_databases(settings), ("mariadb",)),
        *(
            Step(f"schema of {name}", lambda make=make: make(settings), ("databases",))  # type: ignore[misc]
            for name, make in databases.SCHEMAS.items()
        ),
        Step("workflows", lambda: package_archive.populate(settings), ("schema of mistral",)),
    ]


def account_steps(settings: Settings) -> list[Step]:
    """What is done once for each cloud: its accounts, its catalog, its cells."""
    return [
        Step("mariadb", lambda: infrastructure.start_mariadb(settings)),
        Step("memcached", lambda: infrastructure.start_memcached(settings)),
        Step("database account", lambda: infrastructure.create_databases(settings), ("mariadb",)),
        Step("cells", lambda: databases.cells(settings), ("database account",)),
        Step("administrator", lambda: databases.bootstrap(settings), ("database account",)),
        Step(
            "keystone",
            lambda: _start_and_wait(settings, "keystone"),
            ("administrator", "memcached"),
        ),
        Step("accounts and catalog", lambda: identity.set_up(settings), ("keystone",)),
    ]


def steps(settings: Settings) -> list[Step]:
    """What every start does; each step leaves alone what runs already."""
    services = service_processes.services(settings)
    return [
        Step("rabbitmq", lambda: infrastructure.start_rabbitmq(settings)),
        Step("mariadb", lambda: infrastructure.start_mariadb(settings)),
        Step("memcached", lambda: infrastructure.start_memcached(settings)),
        Step(
            "the package's database",
            lambda: package_archive.prepare_database(settings),
            ("mariadb",),
        ),
        Step("workflows", lambda: package_archive.populate(settings), ("mariadb",)),
        *((Step("ceph", lambda: ceph.start(settings)),) if settings.machines else ()),
        *(
            Step(
                f"start {p.name}",
                lambda p=p: service_processes.start(settings, p.name),  # type: ignore[misc]
                (
                    "mariadb",
                    "memcached",
                    *(("the package's database",) if p.service == "mistral" else ()),
                    *(("ceph",) if settings.machines and p.service in _OF_CEPH else ()),
                ),
            )
            for p in services
        ),
        *(
            Step(
                p.name,
                lambda p=p: readiness.wait_for_api(settings, p.name),  # type: ignore[misc]
                (f"start {p.name}",),
            )
            for p in services
            if p.port is not None
        ),
        Step(
            "agents report",
            lambda: readiness.wait_for_agents(settings),
            tuple(f"start {p.name}" for p in services)
            + tuple(p.name for p in services if p.port is not None)
            + ("rabbitmq", "workflows"),
        ),
        Step("seed", lambda: seed.seed(settings), ("agents report",)),
    ]


def _start_and_wait(settings: Settings, name: str) -> None:
    service_processes.start(settings, name)
    readiness.wait_for_api(settings, name)


def _initialised_stamp(settings: Settings) -> Path:
    return settings.data / "initialised"


def _initialised(settings: Settings) -> bool:
    return hashes.stamped(_initialised_stamp(settings), "yes")


def _fresh(settings: Settings, processes: Processes) -> None:
    """Remove what a first start that failed has left."""
    processes.stop_all(processes.running(), grace=30)
    for name in ("data", "etc", "secrets.json"):
        path = settings.state / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    settings.forget_secrets()
    for path in (settings.data, settings.run, settings.log, settings.temporary):
        path.mkdir(parents=True, exist_ok=True)


def check_disk(settings: Settings) -> None:
    """See that there is room.

    :raises CloudError: LOW_DISK.
    """
    settings.state.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(settings.state).free
    if free < NEEDED:
        raise CloudError(
            "LOW_DISK",
            f"{settings.state} has {free >> 20} MiB left; the cloud needs {NEEDED >> 20} MiB.",
            "Make room, or set FAILOVER_CLOUD_STATE to a folder elsewhere.",
        )


def check_ports(settings: Settings) -> None:
    """See that nobody else has a port of a process that does not run.

    :raises CloudError: PORT_TAKEN.
    """
    ports = {p.name: p.port for p in service_processes.services(settings) if p.port is not None}
    ports |= {name: settings.port(name) for name in service_processes.INFRASTRUCTURE}
    running = Processes(settings).running()
    for name, port in ports.items():
        if name not in running and serving.listens(settings.host, port):
            raise CloudError(
                "PORT_TAKEN",
                f"Somebody else listens on port {port}, which {name} needs.",
                f"See who: ss -ltnp 'sport = :{port}'; or set FAILOVER_CLOUD_PORT.",
            )


@contextlib.contextmanager
def installing(settings: Settings) -> Iterator[None]:
    """Only one at a time installs what clouds share; the next one waits."""
    with (settings.shared / "install.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Only one at a time starts or stops a cloud.

    :raises CloudError: BUSY.
    """
    settings.state.mkdir(parents=True, exist_ok=True)
    with (settings.state / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CloudError(
                "BUSY", "Somebody else is starting or stopping this cloud.", "Wait for it."
            ) from None
        yield
