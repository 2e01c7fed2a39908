# SPDX-License-Identifier: Apache-2.0
"""Where the cloud lives: its folder, its ports, its secrets.

Everything comes from the environment, so that whoever starts the cloud and whoever uses it (a
test, a benchmark, a shell) agree without a file:

``FAILOVER_CLOUD_STATE``     the state folder; default: ``.cloud`` in the checkout.
``FAILOVER_CLOUD_PORT``      the first of the ports; default: 25000.
``FAILOVER_CLOUD_PASSWORD``  one password for every account; default: random ones, kept in
                             ``secrets.json`` (mode 0600) of the state folder.
``FAILOVER_CLOUD_LATENCY``   how long the guests' commands take: zero, measured; default: zero.
``FAILOVER_CLOUD_MACHINES``  yes: servers are real guests with real disks, in namespaces of their
                             own (docs/machines.md); default: no.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from testcloud.errors import CloudError

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""
HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"
MANAGEMENT, STORAGE = "172.31.250", "172.31.251"
"""The networks of the machines, without the last number."""
REGION = "RegionOne"
FIRST_PORT = 25000
HOSTS = ("cmp1", "cmp2", "cmp3")
"""The fake hypervisors."""
RACKS = {
    "rack1": ("cmp1", "cmp2", "cmp3"),
    "rack2": ("cmp4", "cmp5"),
    "rack3": ("cmp6", "cmp7"),
}
"""The hosts of real guests, by the availability zone that they are in."""
VICTIM = "cmp4"
"""One more if they are fake, which tests let die. It has only servers that ask for it."""
PROJECTS = ("demo", "other")
"""Projects with a user of the same name, who has exactly the roles that the package needs."""
MEMBER_ROLES = ("member", "heat_stack_owner")

# A port is the first one plus its place here: add at the end only.
PORTS = (
    "keystone",
    "placement",
    "glance",
    "neutron",
    "nova-api",
    "cinder-api",
    "heat-api",
    "heat-api-cfn",
    "mistral-api",
    "aodh-api",
    "guests",
    "mariadb",
    "rabbitmq",
    "rabbitmq-nodes",
    "epmd",
    "memcached",
)
# Who has a secret of their own. The last is a key of 32 characters, not a password.
SECRETS = (
    *("admin", "service", "database", "messages", "heat_domain", *PROJECTS),
    *("boards", "heat_key"),
)


@dataclass(frozen=True)
class Settings:
    """One cloud.

    :ivar state: its folder.
    :ivar first_port: the first of its ports.
    :ivar password: one for every account, None for random ones.
    :ivar latency: the profile of the guests' commands.
    :ivar machines: servers are real guests; everything is in network namespaces.
    """

    state: Path
    first_port: int = FIRST_PORT
    password: str | None = None
    latency: str = "zero"
    machines: bool = False

    @property
    def shared(self) -> Path:
        """The folder of what clouds of both kinds install once."""
        return self.state.parent if self.machines else self.state

    @property
    def host(self) -> str:
        """The address of every service."""
        return f"{MANAGEMENT}.1" if self.machines else HOST

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hypervisors."""
        if self.machines:
            return tuple(host for hosts in RACKS.values() for host in hosts)
        return (*HOSTS, VICTIM)

    def port(self, name: str) -> int:
        """The port of one of `PORTS`."""
        return self.first_port + PORTS.index(name)

    def url(self, name: str) -> str:
        """The base URL of an HTTP service, without a path."""
        return f"http://{self.host}:{self.port(name)}"

    @property
    def auth_url(self) -> str:
        """Keystone's."""
        return f"{self.url('keystone')}/v3"

    @property
    def messages_url(self) -> str:
        """RabbitMQ's, with the password."""
        return f"rabbit://cloud:{self.secret('messages')}@{self.host}:{self.port('rabbitmq')}/"

    @property
    def commands_url(self) -> str:
        """RabbitMQ's for executors and the agents of real guests, with the password."""
        return f"{self.messages_url.replace('rabbit://', 'amqp://')}%2F"

    def database_url(self, name: str) -> str:
        """SQLAlchemy's URL of a database, with the password."""
        return (
            f"mysql+pymysql://cloud:{self.secret('database')}@{self.host}:{self.port('mariadb')}"
            f"/{name}?charset=utf8mb4"
        )

    @property
    def venv(self) -> Path:
        """The services' own environment."""
        return self.shared / "venv"

    @property
    def saved(self) -> Path:
        """The folder of saved databases."""
        return self.shared / "saved"

    @property
    def etc(self) -> Path:
        """The services' configuration."""
        return self.state / "etc"

    @property
    def data(self) -> Path:
        """What the services keep: databases, images, queues, keys."""
        return self.state / "data"

    @property
    def run(self) -> Path:
        """One file for each process."""
        return self.state / "run"

    @property
    def log(self) -> Path:
        """One log for each process."""
        return self.state / "log"

    @property
    def temporary(self) -> Path:
        """What the processes and installers call TMPDIR."""
        return self.state / "tmp"

    @property
    def clouds_yaml(self) -> Path:
        """Entries testcloud-admin, testcloud-demo, testcloud-other."""
        return self.state / "clouds.yaml"

    @property
    def secrets_file(self) -> Path:
        """The passwords, mode 0600."""
        return self.state / "secrets.json"

    @property
    def database_socket(self) -> Path:
        """MariaDB's own socket, by which its owner needs no password."""
        return self.run / "mariadb.sock"

    def secret(self, owner: str) -> str:
        """The password of one of `SECRETS`; made at the first need.

        :raises KeyError: there is no such account.
        """
        return self._secrets[owner]

    @cached_property
    def _secrets(self) -> dict[str, str]:
        if self.secrets_file.exists():
            kept: dict[str, str] = json.loads(self.secrets_file.read_text(encoding="utf-8"))
            return kept
        made = {owner: self.password or secrets.token_hex(16) for owner in SECRETS}
        made["heat_key"] = secrets.token_hex(16)
        self.state.mkdir(parents=True, exist_ok=True)
        write_private(self.secrets_file, json.dumps(made, indent=1))
        return made

    def forget_secrets(self) -> None:
        """Read or make the secrets anew at the next need."""
        self.__dict__.pop("_secrets", None)


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone may read, at no instant anybody else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def load(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of the environment.

    :raises CloudError: BAD_SETTING.
    """
    given = os.environ if environment is None else environment
    text = given.get("FAILOVER_CLOUD_PORT") or str(FIRST_PORT)
    highest = 65535 - len(PORTS)
    if not text.isdigit() or not 1024 <= int(text) <= highest:
        raise CloudError(
            "BAD_SETTING",
            f"FAILOVER_CLOUD_PORT is {text!r}.",
            f"Give the first of {len(PORTS)} ports in a row, from 1024 to {highest}.",
        )
    latency = given.get("FAILOVER_CLOUD_LATENCY") or "zero"
    if latency not in ("zero", "measured"):
        raise CloudError(
            "BAD_SETTING", f"FAILOVER_CLOUD_LATENCY is {latency!r}.", "Give zero or measured."
        )
    state = Path(given.get("FAILOVER_CLOUD_STATE") or ROOT / ".cloud").expanduser().absolute()
    # Sockets are made in there, also in its TMPDIR; the name of one has 107 characters at most.
    if len(str(state)) > 70:
        raise CloudError(
            "BAD_SETTING",
            f"The path {state} is too long for a socket below it.",
            "Set FAILOVER_CLOUD_STATE to a folder with a shorter path.",
        )
    machines = given.get("FAILOVER_CLOUD_MACHINES") or "no"
    if machines not in ("yes", "no"):
        raise CloudError(
            "BAD_SETTING", f"FAILOVER_CLOUD_MACHINES is {machines!r}.", "Give yes or no."
        )
    password = given.get("FAILOVER_CLOUD_PASSWORD") or None
    real = machines == "yes"
    return Settings(state / "machines" if real else state, int(text), password, latency, real)
