# SPDX-License-Identifier: Apache-2.0
"""docs/install.md, "Removing it", played: a Mistral whose groups have failed over loses the
package. Its actions and workflows are gone, its database has nothing of ours, and it runs on. The
members' packages are purged in test_agent_deb.py and erased in test_agent_rpm.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openstack
import pytest
import sqlalchemy as sa

from bench.services import SeparateProcesses
from deploy import wheels
from mistral_failover.lab.drill.run import GROUP, DrillRun
from mistral_failover.lab.drill.scene import CLOUD
from mistral_failover.mistral.releases import RELEASES
from mistral_failover.store import tables
from support import guests
from support.release_sites import Site, made, mistral_of, pins
from support.waiting import until

OTHERS = """\
version: '2.0'

house.greet:
  tasks:
    greet:
      action: std.echo output="hello"
"""

pytestmark = [pytest.mark.releases, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """An environment of its own, since the package leaves it."""
    release = RELEASES[-1]
    python = guests.interpreters().get(release.python)
    if python is None:
        pytest.skip(f"needs Python {release.python}")
    built = wheels.build(tmp_path_factory.mktemp("wheels"))
    return made("removed", release, python, built, pins(release))


@pytest.fixture(scope="module")
def scene(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeparateProcesses]:
    with mistral_of(site, tmp_path_factory.mktemp("scene")) as running:
        yield running


def names(scene: SeparateProcesses, kind: str) -> set[str]:
    """The names of all actions or workflows that Mistral has."""
    return {row["name"] for row in scene.client.request("GET", kind)[kind]}


def in_database(scene: SeparateProcesses, name: str) -> set[str]:
    """The tables of a database."""
    url = sa.engine.make_url(scene.services.state_store).set(database=name)
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    return set(sa.inspect(engine).get_table_names())


def test_what_the_page_removes_is_gone_and_mistral_runs_on(
    site: Site, scene: SeparateProcesses
) -> None:
    services, client = scene.services, scene.client
    outcome = DrillRun(scene, tell=lambda *_told: None).run()
    assert outcome.active == "db_b"
    client.create_workflows(OTHERS)
    at = ("--mistral-url", services.url)

    def told(*words: str) -> str:
        done = site.failover(*words, *at)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert GROUP in told("status")
    lost = scene.server(GROUP, "db_a")
    with openstack.connect(cloud=CLOUD) as cloud:
        cloud.compute.start_server(lost)
    until(lambda: scene.cloud.guests()[lost]["answers"])
    told("recover", GROUP, "db_a")
    told("group", "release", GROUP, "--yes")
    assert GROUP not in told("status")
    client.request("DELETE", "cron_triggers/sweep")
    ours = site.failover("workflows", "remove", "--yes", *at)
    assert "without the package. [MISTRAL_REFUSED]" in ours.stderr, "populate installed them"
    site.pip("uninstall", "mistral-failover", "mistral-failover-agent")
    services.start_without_package()

    assert not {name for name in names(scene, "workflows") if name.startswith("failover.")}
    actions = names(scene, "actions")
    assert "std.echo" in actions
    assert not {name for name in actions if name.startswith("failover.")}
    begun = client.request("POST", "executions", json={"workflow_name": "house.greet"})
    shown = f"executions/{begun['id']}"
    until(lambda: client.request("GET", shown)["state"] == "SUCCESS")
    stored = set(tables.metadata.tables)
    assert in_database(scene, "failover") >= stored
    assert in_database(scene, "mistral") & stored == set()
    left = {path.name for path in site.folder.rglob("*failover*") if path.suffix != ".pyc"}
    assert left == set()
    log = Path(services.log / "all-1.log").read_text("utf-8", errors="replace")
    assert "mistral_failover" not in log.rpartition("Starting")[2]
