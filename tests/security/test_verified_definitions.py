# SPDX-License-Identifier: Apache-2.0
"""A workflow that another project published under a shipped name is not started: a workflow is
started by the id of a definition that is trusted. With the real Mistral."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from keystoneauth1 import exceptions as keystone

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import GuardedSession, Unguarded
from mistral_failover.errors import CodedError
from mistral_failover.lab.testing.engine import TestEngine
from mistral_failover.mistral import shipped_workflows
from mistral_failover.mistral.api import Mistral
from mistral_failover.mistral.client import MistralClient, MistralError
from mistral_failover.mistral.definitions import UNAUTHENTICATED, Definition, trusted

MINE, THEIRS, OTHERS = "mine", "evil", "others"  # Mistral on SQLite finds "evil" first
NAME, USERS = "failover.sweep", "payments.notify"
SHIPPED = shipped_workflows.workflows()[NAME]
REFORMATTED = SHIPPED + "\n# the same\n"


def text(name: str, who: str) -> str:
    return (
        f"version: '2.0'\n{name}: {{description: of {who}, tasks: {{do: {{action: std.noop}}}}}}\n"
    )


Publish = Callable[..., str]


@pytest.fixture
def publish(mistral: TestEngine) -> Iterator[Publish]:
    """Let a project publish a workflow; its id. No other project has one: the engine keeps the
    shipped workflows between tests, as if its operator had installed them."""
    made: list[str] = []
    mistral.clean()
    query("DELETE FROM workflow_definitions_v2")

    def create(
        name: str, definition: str, project: str, namespace: str = "", scope: str = "public"
    ) -> str:
        from mistral.services import workflows

        with mistral.context():
            (row,) = workflows.create_workflows(
                definition, scope=scope, namespace=namespace, validate=False
            )
        assert row.name == name
        made.append(row.id)
        query(
            "UPDATE workflow_definitions_v2 SET project_id = :p WHERE id = :id",
            id=row.id,
            p=project,
        )
        return str(row.id)

    yield create
    mistral.clean()
    for each in made:  # which Mistral lets only their projects do
        query("DELETE FROM workflow_definitions_v2 WHERE id = :id", id=each)


def query(statement: str, **given: str) -> None:
    """Change Mistral's table of definitions, in turn with Mistral: they share one connection."""
    from mistral.db.sqlalchemy import base

    @base.session_aware()
    def change(session: Any = None) -> None:
        session.execute(sa.text(statement), given)

    change()


@pytest.fixture
def client(mistral: TestEngine) -> MistralClient:
    """A caller of the project `MINE`."""
    token = mistral.token_file.read_text("ascii").strip()
    return MistralClient(mistral.url, token=token, project=lambda: MINE)


def run_by(client: MistralClient, name: str = NAME, **more: Any) -> str:
    """Start a workflow; the id of the definition that runs."""
    identity = str(uuid.uuid4())
    client.start(name, id=identity, **more)
    found = client.request("GET", f"executions/{identity}", params={"fields": "workflow_id"})
    return str(found["workflow_id"])


def refusal(client: MistralClient) -> MistralError:
    """Why the shipped workflow is not started."""
    with pytest.raises(MistralError) as refused:
        run_by(client)
    assert refused.value.code == "WORKFLOW_SHADOWED"
    assert started(client) == []
    return refused.value


def started(client: MistralClient) -> list[Any]:
    return list(client.executions(workflow_name=NAME))


@pytest.mark.parametrize("first", [MINE, THEIRS])
def test_ones_own_is_started_whatever_another_project_has_published(
    publish: Publish, client: MistralClient, first: str
) -> None:
    second = THEIRS if first == MINE else MINE
    ids = {each: publish(NAME, text(NAME, each), each) for each in (first, second)}

    assert run_by(client) == ids[MINE]


def test_mistral_itself_would_run_the_one_of_another_project(
    publish: Publish, mistral: TestEngine
) -> None:
    """So would every program that starts it by the name."""
    theirs = publish(NAME, text(NAME, THEIRS), THEIRS)
    token = mistral.token_file.read_text("ascii").strip()

    assert run_by(MistralClient(mistral.url, token=token)) == theirs


def test_the_one_of_another_project_alone_is_refused_with_the_reason(
    publish: Publish, client: MistralClient
) -> None:
    publish(NAME, text(NAME, THEIRS), THEIRS)

    why = refusal(client)

    assert THEIRS in why.message
    assert "failover workflows install" in why.remedy


@pytest.mark.parametrize(
    ("name", "its_text", "owner"),
    [
        (NAME, REFORMATTED, OTHERS),
        (NAME, text(NAME, "another version"), UNAUTHENTICATED),
        (USERS, text(USERS, MINE), MINE),
    ],
    ids=["it says the same", "the operator has populated it", "it is the project's own"],
)
def test_beside_one_of_another_project_that_is_started_which_can_be_trusted(
    publish: Publish, client: MistralClient, name: str, its_text: str, owner: str
) -> None:
    publish(name, text(name, THEIRS), THEIRS)
    trusted = publish(name, its_text, owner)

    assert run_by(client, name) == trusted


def test_what_mistral_reads_in_another_way_is_not_the_same(
    publish: Publish, client: MistralClient
) -> None:
    """Mistral knows no anchors: for it, ``&a tasks`` is another key than ``tasks``, so only the
    first ``tasks`` would run."""
    (own,) = re.findall(r"^ +tasks:\n", SHIPPED, re.MULTILINE)
    indent = own[: own.index("t")]
    evil = f"{indent}tasks: {{do: {{action: std.noop}}}}\n{indent}&a tasks:\n"
    publish(NAME, SHIPPED.replace(own, evil), THEIRS)

    refusal(client)


def test_what_is_private_to_another_project_is_not_started_for_an_administrator(
    publish: Publish, mistral: TestEngine
) -> None:
    """Its owner could change it between the look and the start. Only administrators make one
    public."""
    publish(NAME, SHIPPED, THEIRS, scope="private")
    token = mistral.token_file.read_text("ascii").strip()
    roles = {"X-Roles": "admin"}

    refusal(MistralClient(mistral.url, token=token, headers=roles, project=lambda: MINE))


def test_ones_own_in_a_namespace_is_started_there(publish: Publish, client: MistralClient) -> None:
    theirs = publish(NAME, text(NAME, THEIRS), THEIRS, namespace="ours")
    own = publish(NAME, text(NAME, MINE), MINE, namespace="ours")
    publish(NAME, text(NAME, MINE), MINE)

    assert theirs != own
    assert run_by(client, namespace="ours") == own
    (execution,) = started(client)
    assert execution["params"]["namespace"] == "ours"


def test_a_workflow_that_the_project_lets_another_one_provide_is_started_by_its_name(
    publish: Publish, client: MistralClient
) -> None:
    theirs = publish(USERS, text(USERS, THEIRS), THEIRS)

    assert run_by(client, USERS) == theirs


def test_actions_start_it_in_the_same_way(publish: Publish, mistral: TestEngine) -> None:
    token = mistral.token_file.read_text("ascii").strip()
    session = GuardedSession(guard=Unguarded(60.0), timeout=60.0)
    asked = Mistral(session, mistral.url, token, project=lambda: MINE)
    publish(NAME, text(NAME, THEIRS), THEIRS)

    with pytest.raises(CloudError) as refused:
        asked.start(str(uuid.uuid4()), NAME, {}, "a test")
    assert refused.value.code == "WORKFLOW_SHADOWED"
    assert "failover workflows install" in str(refused.value.remedy)

    publish(NAME, text(NAME, MINE), MINE)
    identity = str(uuid.uuid4())
    asked.start(identity, NAME, {}, "a test")
    assert asked.state(identity) is not None


def test_one_s_own_of_another_namespace_is_not_started(
    publish: Publish, client: MistralClient
) -> None:
    publish(NAME, text(NAME, MINE), MINE, namespace="ours")

    with pytest.raises(MistralError) as refused:
        run_by(client)

    assert refused.value.code == "MISTRAL_REFUSED"


def test_a_project_that_keystone_does_not_tell_is_an_error_of_mistral(mistral: TestEngine) -> None:
    def unknown() -> str:
        raise keystone.ConnectFailure("Keystone is away")

    with pytest.raises(MistralError) as refused:
        MistralClient(mistral.url, project=unknown).start(NAME)

    assert refused.value.code == "MISTRAL_UNREACHABLE"


def test_no_workflow_at_all_is_mistral_s_to_say(mistral: TestEngine, client: MistralClient) -> None:
    with pytest.raises(MistralError) as refused:
        client.start("failover.nothing")

    assert refused.value.code == "MISTRAL_REFUSED"
    mistral.clean()


def test_a_project_s_own_comes_before_the_operator_s() -> None:
    rows = [
        {
            "id": each,
            "name": NAME,
            "project_id": each,
            "scope": "public",
            "definition": text(NAME, each),
        }
        for each in (UNAUTHENTICATED, THEIRS, MINE)
    ]
    found = [Definition.read(row, MINE) for row in rows]

    assert trusted(NAME, found) == MINE
    assert trusted(NAME, found[:2]) == UNAUTHENTICATED
    with pytest.raises(CodedError):
        trusted(NAME, found[1:2])
    assert trusted(USERS, found[1:2]) is None
    assert trusted(NAME, []) is None
