# SPDX-License-Identifier: Apache-2.0
"""Every process of the cloud: its name, its command, its port."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from testcloud.configuration import compute_file
from testcloud.machines import fences, places
from testcloud.processes import Processes
from testcloud.settings import HERE, Settings


@dataclass(frozen=True)
class Process:
    """One process.

    :ivar service: whose it is: mistral, nova, ...; a command may name all of a service.
    :ivar port: where it listens, None for one that only takes messages.
    :ivar in_checkout: it is a module of the checkout and starts there.
    """

    name: str
    service: str
    command: tuple[str, ...]
    port: int | None = None
    in_checkout: bool = False


INFRASTRUCTURE = ("mariadb", "epmd", "rabbitmq", "memcached")


def services(settings: Settings) -> list[Process]:
    """All but the infrastructure, in the order of their start: the slowest first."""
    program = settings.venv / "bin"

    def daemon(name: str, service: str, *command: str) -> Process:
        return Process(name, service, (str(program / command[0]), *command[1:]))

    def wsgi(
        name: str, service: str, module: str, *more: str, processes: int = 1, threads: int = 8
    ) -> Process:
        port = settings.port(name)
        options = (
            *("--http-socket", f"{settings.host}:{port}", "--module", module),
            *("--master", "--processes", str(processes), "--threads", str(threads)),
            "--enable-threads",
            *("--thunder-lock", "--lazy-apps", "--need-app", "--die-on-term"),
            *("--skip-atexit-teardown", "--buffer-size", "65535", "--http-chunked-input"),
            *("--add-header", "Connection: close", "--disable-logging"),
            *("--procname-prefix", f"testcloud-{name} "),
        )
        return Process(name, service, (str(program / "uwsgi"), *options, *more), port)

    computes = [
        daemon(
            f"nova-compute-{host}",
            "nova",
            "nova-compute",
            *("--config-file", str(compute_file(settings, host))),
        )
        for host in settings.hosts
        if not settings.machines  # there it runs on its host
    ]
    neutron_file = f"--config-file {settings.etc / 'neutron' / 'neutron.conf'}"
    return [
        # Its middleware keeps a request's token in an attribute that threads share
        # (AuthContextMiddleware.token): another request's scope would be judged by it.
        wsgi("keystone", "keystone", "keystone.wsgi.api:application", processes=3, threads=1),
        wsgi("neutron", "neutron", "neutron.wsgi.api:application", "--pyargv", neutron_file),
        wsgi("nova-api", "nova", "nova.wsgi.osapi_compute:application"),
        wsgi("placement", "placement", "placement.wsgi.api:application"),
        daemon("nova-conductor", "nova", "nova-conductor"),
        *computes,
        daemon("heat-engine", "heat", "heat-engine"),
        daemon("cinder-volume", "cinder", "cinder-volume"),
        daemon("cinder-scheduler", "cinder", "cinder-scheduler"),
        daemon("nova-scheduler", "nova", "nova-scheduler"),
        wsgi("glance", "glance", "glance.wsgi.api:application"),
        wsgi("cinder-api", "cinder", "cinder.wsgi.api:application"),
        wsgi("heat-api", "heat", "heat.wsgi.api:application"),
        wsgi("mistral-api", "mistral", "mistral.wsgi:application"),
        daemon("mistral-engine", "mistral", "mistral-server", "--server", "engine"),
        daemon("mistral-executor-1", "mistral", "mistral-server", "--server", "executor"),
        daemon("mistral-executor-2", "mistral", "mistral-server", "--server", "executor"),
        daemon("mistral-periodic", "mistral", "mistral-server", "--server", "periodic"),
        wsgi("heat-api-cfn", "heat", "heat.wsgi.cfn:application"),
        wsgi("aodh-api", "aodh", "aodh.wsgi.api:application"),
        daemon("aodh-listener", "aodh", "aodh-listener"),
        daemon("aodh-notifier", "aodh", "aodh-notifier"),
        daemon("ceilometer-notification", "ceilometer", "ceilometer-agent-notification"),
        *(_machines(settings) if settings.machines else (_guests(settings),)),
    ]


def _guests(settings: Settings) -> Process:
    command = (sys.executable, "-m", "testcloud.guests")
    return Process("guests", "guests", command, settings.port("guests"), in_checkout=True)


def _machines(settings: Settings) -> Iterator[Process]:
    conf = str(places.ceph_conf(settings))
    for name, identity in places.CEPH.items():
        yield Process(name, "ceph", (name, "-f", "-c", conf, "-i", identity))
    for host in settings.hosts:
        command = fences.board_command(places.board_files(settings, host))
        yield Process(places.board(host), "boards", command, in_checkout=True)
        # To kill the second program, or its child, is to kill everything on the host.
        apart = (
            *("nsenter", f"--net={places.namespace(settings, host)}", "--"),
            *("unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"),
            *("--mount-proc", "--propagation", "private", "--"),
        )
        program = (sys.executable, "-m", "testcloud.machines.host", host)
        yield Process(places.process(host), "hosts", (*apart, *program), in_checkout=True)


def environment(settings: Settings) -> dict[str, str]:
    """What every process finds in its environment: no proxies, no credentials of the caller's."""
    etc = settings.etc
    return {
        "PATH": f"{settings.venv / 'bin'}:{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin",
        **({"PYTHONPATH": str(places.bindings(settings))} if settings.machines else {}),
        "LANG": "C.UTF-8",
        "HOME": str(etc / "home"),
        "TMPDIR": str(settings.temporary),
        "PYTHONWARNINGS": "ignore",
        "PYTHONUNBUFFERED": "1",
        "OS_KEYSTONE_CONFIG_FILES": "keystone.conf",
        "OS_KEYSTONE_CONFIG_DIR": str(etc / "keystone"),
        "OS_PLACEMENT_CONFIG_DIR": str(etc / "placement"),
        "OS_GLANCE_CONFIG_DIR": str(etc / "glance"),
        "OS_NOVA_CONFIG_DIR": str(etc / "nova"),
        "FAILOVER_CLOUD_STATE": str(settings.shared),
        "FAILOVER_CLOUD_MACHINES": "yes" if settings.machines else "no",
        # For an operator's credential: only what fences reads it.
        "OS_CLIENT_CONFIG_FILE": str(settings.clouds_yaml),
        "FAILOVER_CLOUD_PORT": str(settings.first_port),
        "FAILOVER_CLOUD_LATENCY": settings.latency,
    }


def start(settings: Settings, name: str) -> bool:
    """Start the service process of this name; False when it runs already."""
    process = next(p for p in services(settings) if p.name == name)
    folder = HERE.parent if process.in_checkout else settings.data
    return Processes(settings).start(name, process.command, environment(settings), folder)
