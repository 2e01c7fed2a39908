# SPDX-License-Identifier: Apache-2.0
"""docs/upgrade.md, played: the installed package is replaced by another version while a failover is
under way, one process of Mistral after the other. The failover ends, nothing happens twice, and the
version of before refuses the store from then on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import mistral_failover.workflows
from bench.databases import MariaDb
from deploy import wheels
from deploy.version import write as write_version
from mistral_failover.embedded import access
from mistral_failover.embedded.settings import LOCAL_HTTP
from mistral_failover.lab.drill import examples
from mistral_failover.lab.emulator.client import write_clouds_yaml
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.mistral.client import MistralClient
from mistral_failover.store import tables
from support.deployments import create_example
from support.waiting import until

pytestmark = [pytest.mark.package, pytest.mark.timeout(1500)]
UV = [sys.executable, "-m", "uv", "pip"]
NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "0002_next"
down_revision = "0001_first"

def upgrade():
    op.add_column("failover_groups", sa.Column("note", sa.String(64), nullable=True))
"""
GROUP = "payments"


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[Path, Path], ...]:
    """The wheels of this version, and of the next one, whose store has another column."""
    present = wheels.build(tmp_path_factory.mktemp("present"))
    sources = tmp_path_factory.mktemp("sources")
    for name in (*wheels.SOURCES, wheels.AGENT, "deploy"):
        copy = shutil.copytree if (wheels.ROOT / name).is_dir() else shutil.copy
        copy(wheels.ROOT / name, sources / name)
    write_version("99.0.0", sources)
    migrations = sources / "actions/mistral_failover/store/migrations/versions"
    (migrations / "0002_next.py").write_text(NEXT, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wheels, "ROOT", sources)
        following = wheels.build(tmp_path_factory.mktemp("following"))
    return present, following


class Host:
    """A host of Mistral: an environment with the package, and a Mistral that runs from it."""

    def __init__(self, folder: Path, options: dict[str, str], clouds: Path) -> None:
        self.folder, self._options, self._clouds = folder, options, clouds
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        self.python = folder / "venv" / "bin" / "python"
        (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        # Mistral and all else that the package needs; not the checkout, which is no folder there.
        ours = Path(sa.__file__).parents[1]
        (packages / "beside.pth").write_text(f"{ours}\n", "utf-8")
        self._process: subprocess.Popen[str] | None = None

    def install(self, built: tuple[Path, Path]) -> None:
        """Install both wheels in place of what is there."""
        command = [*UV, "install", "--quiet", "--no-deps", "--reinstall", "--python", self.python]
        subprocess.run([*command, *built], check=True)

    def start(self) -> MistralClient:
        """Start its Mistral, which sweeps; a client of it."""
        state = self.folder / "state"
        state.mkdir(mode=0o700, exist_ok=True)
        given = [f"--set={name}={value}" for name, value in self._options.items()]
        self._process = subprocess.Popen(
            [self.python, "-m", "mistral_failover.embedded", state, "--sweep", *given]
            + ["--workflows", *map(str, mistral_failover.workflows.paths())],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            stderr=(self.folder / "log").open("a", encoding="utf-8"),
            text=True,
            cwd=self.folder,
            env=os.environ | {"OS_CLIENT_CONFIG_FILE": str(self._clouds)},
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self.folder / "log").read_text("utf-8")[-2000:]
        return MistralClient(json.loads(line)["url"], token=access.token(state))  # noqa: TID251

    def stop(self) -> None:
        """Stop its Mistral by SIGTERM, as a service manager does."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def version(self) -> str:
        """The version that is installed."""
        script = "from importlib.metadata import version; print(version('mistral-failover'))"
        done = subprocess.run(
            [self.python, "-c", script], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[EmulatedCloud, list[Host], sa.Engine]]:
    """A cloud, three hosts of Mistral with one state store on MariaDB, and that."""
    if not MariaDb.is_installed():
        pytest.skip("needs mariadbd")
    with MariaDb(tmp_path / "mariadb") as server, EmulatedCloud() as cloud:
        admin = sa.create_engine(server.url, isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(sa.text("CREATE DATABASE failover"))
        url = sa.engine.make_url(server.url).set(database="failover")
        clouds = tmp_path / "clouds.yaml"
        write_clouds_yaml(clouds, "emulated", cloud.url)
        options = {
            "failover.database": url.render_as_string(hide_password=False),
            "failover.cloud": "emulated",
            "failover.auth_url": cloud.auth_url,
            "failover.command_channel": f"emulator+{cloud.url}",
            "failover.lease": "10",
            "failover.sweep_after": "1",
            **{name: str(value) for name, value in LOCAL_HTTP.items()},
        }
        with contextlib.ExitStack() as stack:
            hosts = []
            for name in ("one", "two", "three"):
                (tmp_path / name).mkdir()
                hosts.append(Host(tmp_path / name, options, clouds))
                stack.callback(hosts[-1].stop)
            yield cloud, hosts, sa.create_engine(url, poolclass=sa.pool.NullPool)


def test_a_failover_goes_on_while_the_package_is_replaced(
    site: tuple[EmulatedCloud, list[Host], sa.Engine],
    versions: tuple[tuple[Path, Path], ...],
) -> None:
    (cloud, (one, two, three), store), (present, following) = site, versions
    for host in (one, two, three):
        host.install(present)
    first, second = one.start(), two.start()
    create_example(cloud.client, GROUP)
    first.run_action("failover.define", {"definition": examples.group(1, GROUP), "name": GROUP})
    first.run("failover.activate_first", {"group": GROUP}, timeout=240)
    assert status(second)["roles"] == {"active": "db_a"}

    server = str(cloud.client.resources(GROUP)["db_a"]["physical_resource_id"])
    cloud.client.api_fault("attach", "error", status=503, times=100_000)
    cloud.client.fault("server", server, "crash")
    first.start("failover.on_alarm", cloud.client.alarm_body(server))
    until(lambda: "attach" in str(status(second)["waiting"]) or attached(store), limit=240)
    one.stop()
    one.install(following)
    assert one.version() == "99.0.0"
    first = one.start()
    assert status(first)["status"] == "IN_PROGRESS", "its first action upgrades the store"
    assert revision(store) == "0002_next"
    assert status(second)["status"] == "IN_PROGRESS", "the version of before works on"
    refused: Any = None
    try:
        status(three.start())
    except Exception as error:  # noqa: BLE001 - whatever way it says so
        refused = error
    assert "does not know the schema of the state store, 0002_next" in str(refused), refused
    assert "Install the version that the other hosts have" in str(refused)
    cloud.client.clear_api_faults()
    two.stop()
    two.install(following)
    second = two.start()

    until(lambda: status(second)["status"] == "COMPLETE", limit=240)

    assert status(first)["roles"] == {"active": "db_b"}
    assert cloud.client.violations() == []
    with store.connect() as connection:
        started = connection.execute(
            sa.select(sa.func.count()).select_from(tables.traversals)
        ).scalar_one()
    assert started == 2, "the first activation, and one failover"


def status(client: MistralClient) -> dict[str, Any]:
    """What a Mistral says of the group."""
    return dict(client.run_action("failover.status", {"group": GROUP}))


def revision(store: sa.Engine) -> str:
    """That of the store's tables."""
    with store.connect() as connection:
        query = sa.text("SELECT version_num FROM failover_schema")
        return str(connection.execute(query).scalar_one())


def attached(store: sa.Engine) -> bool:
    """Whether a volume is being attached to db_b."""
    query = sa.select(tables.resources.c.id).where(
        tables.resources.c.type == "volume_attachment",
        tables.resources.c.member == "db_b",
        tables.resources.c.action == "CREATE",
        tables.resources.c.status != "COMPLETE",
    )
    with store.connect() as connection:
        return connection.execute(query).first() is not None
