# SPDX-License-Identifier: Apache-2.0
"""Mistral's own API, found in the catalog and asked with the token of the request."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace

import pytest

from contract.rig import UNKNOWN_ID, Rig
from mistral_failover.mistral.api import Mistral, mistral_for

pytestmark = pytest.mark.only_on(
    "real", reason="the emulated cloud has no Mistral; tests/embedded asks a real one in a process"
)
WORKFLOWS = """
version: '2.0'
{name}.outer:
  input: [word]
  tasks:
    below: {{workflow: {name}.inner, input: {{word: <% $.word %>}}}}
{name}.inner:
  input: [word]
  tasks:
    wait: {{action: std.noop, wait-before: 600}}
"""


def mistral_of(rig: Rig, name: str = "demo") -> Mistral:
    """Mistral with a token by which another user acts as somebody."""
    security = SimpleNamespace(
        auth_uri=rig.auth_url,
        auth_token=rig.trust(name)[0],
        project_id=rig.project_id(name),
        region_name="RegionOne",
    )
    found = mistral_for(security, rig.settings)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def prefix(rig: Rig) -> Iterator[str]:
    """The name that two workflows begin with, one of which starts the other."""
    session, name = rig.api().session, rig.name()
    endpoint = {"service_type": "workflowv2", "interface": "public"}
    made = session.post(
        "/workflows",
        endpoint_filter=endpoint,
        data=WORKFLOWS.format(name=name),
        headers={"Content-Type": "text/plain"},
        raise_exc=False,
    )
    assert made.status_code == 201, made.text
    yield name
    for workflow in ("outer", "inner"):
        session.delete(f"/workflows/{name}.{workflow}", endpoint_filter=endpoint)


def test_an_execution_is_started_once_seen_whole_and_ended(rig, prefix):
    mistral, root = mistral_of(rig), str(uuid.uuid4())
    for _ in range(2):
        mistral.start(root, f"{prefix}.outer", {"word": "w"}, "a test of the contract")
    tree = rig.until(lambda: len(found := mistral.tree(root)) == 2 and found)
    outer, inner = tree
    assert (outer.id, outer.workflow, outer.root) == (root, f"{prefix}.outer", root)
    assert (inner.workflow, inner.root, inner.input) == (f"{prefix}.inner", root, {"word": "w"})
    assert {each.id for each in mistral.running(prefix)} == {outer.id, inner.id}
    assert abs(mistral.now - outer.changed) < timedelta(minutes=2)
    assert mistral.changed_within(root) >= outer.changed - timedelta(seconds=2)
    assert mistral.state(root) == "RUNNING"

    foreign = mistral_of(rig, "other")
    assert (foreign.state(root), foreign.tree(root)) == (None, [])
    assert list(foreign.running(prefix)) == []

    mistral.end(root, "CANCELLED", "enough seen")
    rig.until(lambda: all(each.ended for each in mistral.tree(root)))
    assert mistral.state(root) == "CANCELLED"


def test_an_execution_that_does_not_exist_is_none(rig):
    mistral = mistral_of(rig)
    assert mistral.state(UNKNOWN_ID) is None
    assert mistral.tree(UNKNOWN_ID) == []
