# SPDX-License-Identifier: Apache-2.0
"""A group that needs what Nova or Cinder does not offer is refused, and the doctor names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mistral_lib.actions import Result

from mistral_failover.actions.doctor import Doctor
from mistral_failover.actions.groups import Define
from mistral_failover.cloud import session
from mistral_failover.lab.emulator.server import EmulatedCloud
from support.scaled_groups import ScaledGroup, definition, emulated, of, shared, state

__all__ = ["emulated", "of", "shared", "state"]


@pytest.fixture
def offer(
    emulated: EmulatedCloud, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., None]]:
    """Let a service of the cloud offer no more than this. What it said before is forgotten, as when
    a token has ended."""

    def change(service: str, **what: Any) -> None:
        emulated.client.offer(service, **what)
        monkeypatch.setattr(session, "_entries", session._AuthenticationCache())
        monkeypatch.setattr(session, "_read", {})

    yield change
    for service in ("compute", "volume"):
        change(service)


def with_volume(name: str, **properties: Any) -> dict[str, Any]:
    document = definition(name)
    document["resources"]["disk"] = {
        "type": "volume_attachment",
        "properties": {"volume": "data", "server": {"get_param": "active"}, **properties},
    }
    return document


EVACUATED = {"servers": ["db_a", "db_b"], "replace": "lost", "restart": ["evacuate"]}
CASES = [
    ("compute", "2.94", "2.95", "members.restart[0]", {"members": EVACUATED}, "way evacuate"),
    ("compute", "2.50", "2.51", "fence[0]", {"fence": ["delete"]}, "the rung delete needs 2.51"),
    ("compute", "2.52", "2.53", "fence[1]", {"fence": ["stop", "host_power"]}, "host_power"),
    ("volume", "3.43", "3.44", "resources.disk", {}, "the volume disk needs 3.44"),
]


@pytest.mark.parametrize(("service", "below", "at", "path", "changes", "words"), CASES)
def test_below_what_a_rung_or_a_volume_needs_a_group_is_refused(
    of: Callable[..., ScaledGroup],
    offer: Callable[..., None],
    service: str,
    below: str,
    at: str,
    path: str,
    changes: dict[str, Any],
    words: str,
) -> None:
    group = of(2)
    document = with_volume(group.name) | changes

    def refusal() -> Any:
        answer = group.run(Define(document, name=f"{group.name}-x", dry_run=True))
        return answer.error if isinstance(answer, Result) else None

    offer(service, up_to=at)
    assert "offers up to" not in str(refusal())
    offer(service, up_to=below)
    refused = refusal()
    assert refused["code"] == "INVALID_DOCUMENT"
    assert path in refused["message"]
    assert f"offers up to {below}" in refused["message"]
    assert words in refused["message"]


def test_the_doctor_names_what_a_group_needs_and_does_not_get(
    of: Callable[..., ScaledGroup], offer: Callable[..., None]
) -> None:
    group = of(2, fence=["stop", "delete"])
    offer("compute", up_to="2.50")
    rows = [r for r in group.done(Doctor(group.name))["findings"] if r["check"] == "offered"]
    assert [(row["level"], row["remedy"]) for row in rows] == [
        ("error", "Upgrade Nova, or leave the rung out.")
    ]
    assert "fence[1]: Nova of this cloud offers up to 2.50" in rows[0]["sentence"]


def test_the_doctor_names_what_only_the_latest_definition_needs(
    of: Callable[..., ScaledGroup], offer: Callable[..., None]
) -> None:
    group = of(2)
    group.done(Define(definition(group.name) | {"fence": ["stop", "delete"]}, name=group.name))
    offer("compute", up_to="2.50")

    rows = group.done(Doctor(group.name))["findings"]

    assert not [row for row in rows if row["check"] == "offered"]
    said = [row["sentence"] for row in rows if row["check"] == "definition"]
    assert any("as defined: fence[1]: Nova of this cloud" in each for each in said)
