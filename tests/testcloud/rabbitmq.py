# SPDX-License-Identifier: Apache-2.0
"""A RabbitMQ of one's own, of Debian's package: a node beside the system's, which it never meets.

Folder, ports, cookie and epmd are its own, and it runs as the user who starts it. It listens on one
address alone, by default on loopback.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testcloud.processes import Processes
from testcloud.serving import listens, program, until
from testcloud.settings import HOST, write_private

SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""Debian's in the PATH would become the user rabbitmq."""
CONTROL = "/usr/lib/rabbitmq/bin/rabbitmqctl"


@dataclass(frozen=True)
class Node:
    """One broker.

    :ivar name: of the Erlang node, on localhost; no other node of this epmd has it.
    :ivar home: what it keeps: queues, users, the cookie.
    :ivar config: path of its configuration, which holds the password.
    :ivar nodes_port: where rabbitmqctl reaches it.
    :ivar user: its administrator, and what runs in the virtual host.
    """

    name: str
    home: Path
    log: Path
    config: Path
    port: int
    nodes_port: int
    epmd_port: int
    user: str
    password: str
    virtual_host: str = "/"
    host: str = HOST

    def write(self) -> None:
        """Write what it reads at its start."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.log.mkdir(parents=True, exist_ok=True)
        write_private(
            self.config,
            "loopback_users = none\n"
            f"default_user = {self.user}\n"
            f"default_pass = {self.password}\n"
            f"default_vhost = {self.virtual_host}\n"
            "log.console = true\nlog.console.level = warning\nlog.file = false\n"
            "vm_memory_high_watermark.relative = 0.2\n"
            "disk_free_limit.absolute = 50MB\n",
        )
        (self.home / "plugins").write_text("[].\n", encoding="ascii")
        (self.home / "env.conf").touch()

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment of its processes, and of rabbitmqctl."""
        return {
            **environment,
            "HOME": str(self.home),
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": self.host,
            # Then its script becomes the broker instead of watching over it.
            "RUNNING_UNDER_SYSTEMD": "yes",
            "RABBITMQ_NODENAME": f"{self.name}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": self.host,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.nodes_port),
            "RABBITMQ_MNESIA_BASE": str(self.home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.log),
            "RABBITMQ_PID_FILE": str(self.home / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.home / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.config),
            "RABBITMQ_CONF_ENV_FILE": str(self.home / "env.conf"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none "
            "+sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}",
        }

    def start(self, processes: Processes, environment: Mapping[str, str]) -> None:
        """Start epmd and the broker, each unless it runs, and return when it takes connections.

        :raises CloudError: PACKAGES_MISSING, PROCESS_DIED, NOT_READY.
        """
        self.write()
        variables = self.variables(environment)
        processes.start("epmd", (program("epmd"), "-address", self.host), variables, self.home)
        until(processes, "epmd", lambda: listens(self.host, self.epmd_port))
        processes.start("rabbitmq", (program(SERVER),), variables, self.home, first=True)
        until(processes, "rabbitmq", lambda: listens(self.host, self.port))
