# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: workflows are tested on the real Mistral engine, in milliseconds.

It needs the extra ``embedded``: ``pip install 'mistral-failover[embedded]' pytest``. Installed with
this package; nothing is imported until a test asks for a fixture. Your own actions
(entry points ``mistral.actions``) and workflows are treated like the shipped ones::

    from mistral_lib.actions import Result

    def test_a_server_that_vanishes_ends_the_workflow(workflow):
        workflow.load("workflows/stop_server.yaml")
        workflow.replace("my.stop", Result(error={"code": "NOT_FOUND", "message": "gone"}))

        run = workflow.run("stop_server", {"server": "db-1"})

        run.assert_failed_with("NOT_FOUND")
        run.assert_tasks("stop", "report")
        assert workflow.calls("my.stop") == [{"server": "db-1"}]

    def test_it_asks_again_until_the_server_is_off(workflow):
        workflow.load("workflows/stop_server.yaml")
        workflow.replace("my.stop", None)
        workflow.replace("my.status", sequence=["ACTIVE", "ACTIVE", "SHUTOFF"])

        assert workflow.run("stop_server", {"server": "db-1"}).output == {"status": "SHUTOFF"}

What is real: parser, engine, scheduler, executor threads, the transport's JSON, the signatures of
replaced actions (a wrong or missing input fails as in production). What is not: the database is
SQLite in memory, and ``retry`` delays, ``wait-before`` and ``wait-after`` take no
time. ``timeout`` keeps its seconds.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mistral_failover.lab.testing.engine import TestEngine
    from mistral_failover.lab.testing.workflows import Workflows


@pytest.fixture(scope="session")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[TestEngine]":
    """The engine of this test process (each xdist worker has its own); 2-5 s once."""
    if find_spec("mistral") is None:
        pytest.fail("Mistral is not installed: pip install 'mistral-failover[embedded]'", False)
    from mistral_failover.lab.testing.engine import TestEngine

    with TestEngine(tmp_path_factory.mktemp("mistral")) as engine:
        yield engine


@pytest.fixture
def workflow(mistral: "TestEngine") -> "Iterator[Workflows]":
    """Load, run and inspect workflows; definitions, executions and replacements end with the test.

    A check that failed inside a replaced action fails the test here, if ``run`` did not say so.
    """
    from mistral_failover.lab.testing.workflows import Workflows

    workflows = Workflows(mistral)
    try:
        yield workflows
        workflows.raise_failed_check()
    finally:
        mistral.clean()
