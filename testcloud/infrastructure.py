# SPDX-License-Identifier: Apache-2.0
"""MariaDB, RabbitMQ with its epmd, memcached: of Debian, but with folders and ports of their own.

MariaDB and RabbitMQ run as whoever starts the cloud, so that everything in the state folder
belongs to one user. memcached refuses to be root and gives the rights up.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import ER

from testcloud.errors import CloudError
from testcloud.processes import Processes
from testcloud.roster import environment
from testcloud.settings import HOST, Settings, write_private

PLACES = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/lib/rabbitmq/bin"
DATABASES = (
    *("keystone", "placement", "glance", "neutron", "nova_api", "nova", "nova_cell0"),
    *("cinder", "heat", "mistral", "aodh", "failover"),
)
_RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"
_LIMIT = 90.0  # seconds until each must answer


def program(name: str) -> str:
    """The path of a program.

    :raises CloudError: PACKAGES_MISSING.
    """
    found = shutil.which(name, path=PLACES)
    if found is None:
        raise CloudError(
            "PACKAGES_MISSING", f"There is no {name}.", "As root: python -m testcloud install"
        )
    return found


def start_mariadb(settings: Settings) -> None:
    """Start it and return when it answers; the first time with an empty folder."""
    folder = settings.data / "mariadb"
    if not (folder / "mysql").is_dir():
        _install(settings, folder)
    options = (
        *("--no-defaults", f"--user={getpass.getuser()}", f"--datadir={folder}"),
        *(f"--socket={settings.database_socket}", f"--port={settings.port('mariadb')}"),
        *(f"--bind-address={HOST}", f"--pid-file={settings.run / 'mariadb.pid'}"),
        *("--max-connections=600", "--skip-name-resolve", "--performance-schema=OFF"),
        *("--skip-log-bin", "--innodb-buffer-pool-size=256M", "--innodb-log-file-size=32M"),
        # A killed mariadbd loses nothing; the machine's power loss may cost a second.
        "--innodb-flush-log-at-trx-commit=2",
    )
    processes = Processes(settings)
    home = settings.data
    processes.start(
        "mariadb", (program("mariadbd"), *options), environment(settings), home, first=True
    )
    _until(processes, "mariadb", lambda: _answers(settings))


def start_rabbitmq(settings: Settings) -> None:
    """Start epmd and the broker, and return when it takes connections."""
    home = settings.data / "rabbitmq"
    home.mkdir(parents=True, exist_ok=True)
    config = settings.etc / "rabbitmq.conf"
    write_private(
        config,
        "loopback_users = none\n"
        "default_user = cloud\n"
        f"default_pass = {settings.secret('messages')}\n"
        "log.console = true\nlog.console.level = warning\nlog.file = false\n"
        "vm_memory_high_watermark.relative = 0.2\n"
        "disk_free_limit.absolute = 50MB\n",
    )
    (home / "plugins").write_text("[].\n", encoding="ascii")
    (home / "env.conf").touch()
    variables = {
        **environment(settings),
        "HOME": str(home),
        "ERL_EPMD_PORT": str(settings.port("epmd")),
        "ERL_EPMD_ADDRESS": HOST,
        # Then its script becomes the broker instead of watching over it.
        "RUNNING_UNDER_SYSTEMD": "yes",
        "RABBITMQ_NODENAME": f"testcloud{settings.first_port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(settings.port("rabbitmq")),
        "RABBITMQ_DIST_PORT": str(settings.port("rabbitmq-nodes")),
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_LOG_BASE": str(settings.log),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_CONF_ENV_FILE": str(home / "env.conf"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none "
        "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    processes = Processes(settings)
    processes.start("epmd", (program("epmd"), "-address", HOST), variables, home)
    _until(processes, "epmd", lambda: listens(settings.port("epmd")))
    processes.start("rabbitmq", (_RABBITMQ,), variables, home, first=True)
    _until(processes, "rabbitmq", lambda: listens(settings.port("rabbitmq")))


def start_memcached(settings: Settings) -> None:
    """Start it and return when it takes connections."""
    port = settings.port("memcached")
    command = [program("memcached"), "-l", HOST, "-p", str(port), "-m", "64"]
    if os.getuid() == 0:
        command += ["-u", "nobody"]
    processes = Processes(settings)
    processes.start("memcached", command, environment(settings), Path("/"))
    _until(processes, "memcached", lambda: listens(port))


def create_databases(settings: Settings) -> None:
    """Create the databases and their one account; root gets a password and stays on the socket."""
    password = settings.secret("database")
    sql(
        settings,
        *((f"CREATE DATABASE IF NOT EXISTS {d} CHARACTER SET utf8mb4", ()) for d in DATABASES),
        ("CREATE USER IF NOT EXISTS cloud@%s IDENTIFIED BY %s", (HOST, password)),
        ("GRANT ALL ON *.* TO cloud@%s", (HOST,)),
        ("DELETE FROM mysql.global_priv WHERE User = 'root' AND Host <> 'localhost'", ()),
        ("FLUSH PRIVILEGES", ()),
        ("ALTER USER root@localhost IDENTIFIED BY %s", (password,)),
    )


def sql(settings: Settings, *statements: tuple[str, tuple[str, ...]]) -> None:
    """Run statements, each with its values, as MariaDB's own root."""
    with _root(settings) as connection:
        with connection.cursor() as cursor:
            for statement, values in statements:
                cursor.execute(statement, values)
        connection.commit()


def _root(settings: Settings) -> Any:
    where = {"unix_socket": str(settings.database_socket), "user": "root", "connect_timeout": 5}
    try:
        return pymysql.connect(password=settings.secret("database"), **where)
    except pymysql.OperationalError as error:
        if error.args[0] != ER.ACCESS_DENIED_ERROR:
            raise
        return pymysql.connect(**where)  # a new installation's root has none


def listens(port: int) -> bool:
    """Whether somebody takes connections at a port of loopback."""
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False


def _install(settings: Settings, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = settings.log / "mariadb-install-db.log"
    command = [
        *(program("mariadb-install-db"), "--no-defaults", f"--user={getpass.getuser()}"),
        *(f"--datadir={folder}", "--auth-root-authentication-method=normal", "--skip-test-db"),
        *("--skip-name-resolve", "--innodb-log-file-size=32M"),
    ]
    with log.open("wb") as output:
        done = subprocess.run(command, stdout=output, stderr=output, check=False)
    if done.returncode != 0:
        raise CloudError("DATABASE_FAILED", "MariaDB could not be set up.", f"See {log}.")


def _answers(settings: Settings) -> bool:
    try:
        _root(settings).close()
    except pymysql.OperationalError:
        return False
    return True


def _until(processes: Processes, name: str, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT
    while not true():
        if processes.find(name) is None:
            raise processes.died(name)
        if time.monotonic() > deadline:
            raise CloudError("NOT_READY", f"{name} does not answer after {_LIMIT:g} s.")
        time.sleep(0.1)
