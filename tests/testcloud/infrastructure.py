# SPDX-License-Identifier: Apache-2.0
"""MariaDB, RabbitMQ with its epmd, memcached: of Debian, but with folders and ports of their own.

MariaDB and RabbitMQ run as the user who starts the cloud, so that everything in the state folder
belongs to one user. memcached refuses to be root and gives the rights up.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import ER

from testcloud.errors import CloudError
from testcloud.processes import Processes
from testcloud.rabbitmq import Node
from testcloud.service_processes import environment
from testcloud.serving import listens, program, until
from testcloud.settings import Settings

DATABASES = (
    *("keystone", "placement", "glance", "neutron", "nova_api", "nova", "nova_cell0"),
    *("cinder", "heat", "mistral", "aodh", "failover"),
)


def start_mariadb(settings: Settings) -> None:
    """Start it and return when it answers; the first time with an empty folder."""
    folder = settings.data / "mariadb"
    if not (folder / "mysql").is_dir():
        _install(settings, folder)
    options = (
        *("--no-defaults", f"--user={getpass.getuser()}", f"--datadir={folder}"),
        *(f"--socket={settings.database_socket}", f"--port={settings.port('mariadb')}"),
        *(f"--bind-address={settings.host}", f"--pid-file={settings.run / 'mariadb.pid'}"),
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
    until(processes, "mariadb", lambda: _answers(settings))


def start_rabbitmq(settings: Settings) -> None:
    """Start epmd and the broker, and return when it takes connections."""
    node = Node(
        name=f"testcloud{settings.first_port}",
        host=settings.host,
        home=settings.data / "rabbitmq",
        log=settings.log,
        config=settings.etc / "rabbitmq.conf",
        port=settings.port("rabbitmq"),
        nodes_port=settings.port("rabbitmq-nodes"),
        epmd_port=settings.port("epmd"),
        user="cloud",
        password=settings.secret("messages"),
    )
    node.start(Processes(settings), environment(settings))


def start_memcached(settings: Settings) -> None:
    """Start it and return when it takes connections."""
    port = settings.port("memcached")
    command = [program("memcached"), "-l", settings.host, "-p", str(port), "-m", "64"]
    if os.getuid() == 0:
        command += ["-u", "nobody"]
    processes = Processes(settings)
    processes.start("memcached", command, environment(settings), Path("/"))
    until(processes, "memcached", lambda: listens(settings.host, port))


def create_databases(settings: Settings) -> None:
    """Create the databases and their one account; root gets a password and stays on the socket."""
    password = settings.secret("database")
    sql(
        settings,
        *((f"CREATE DATABASE IF NOT EXISTS {d} CHARACTER SET utf8mb4", ()) for d in DATABASES),
        ("CREATE USER IF NOT EXISTS cloud@%s IDENTIFIED BY %s", (settings.host, password)),
        ("GRANT ALL ON *.* TO cloud@%s", (settings.host,)),
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
        done = subprocess.run(
            command, env=environment(settings), stdout=output, stderr=output, check=False
        )
    if done.returncode != 0:
        raise CloudError("DATABASE_FAILED", "MariaDB could not be set up.", f"See {log}.")


def _answers(settings: Settings) -> bool:
    try:
        _root(settings).close()
    except pymysql.OperationalError:
        return False
    return True
