# SPDX-License-Identifier: Apache-2.0
"""PATCHes when answers get lost or Heat fails: how often Heat takes one."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.cloud import stack_updates
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.stack_updates import patch_parameters, same_value
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.settings import Settings


def patches(emulator):
    return [row for row in emulator.critical() if row["kind"] == "patch"]


def parameters(cloud, stack):
    return cloud.heat.stacks.get(stack).parameters


AWAY = "Unable to establish connection to http://10.0.0.5:8042/v2/alarms: Connection refused"


def test_an_update_that_failed_because_a_service_was_away_is_worth_another_try(
    cloud, pair, emulator
):
    emulator.api_fault("stack_patch", "fail", says=f"ConnectFailure: resources.lost: {AWAY}")
    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, pair.name, {"active": "db_b"}, 10)
    error = raised.value
    assert (error.code, error.transient, error.unknown) == ("STACK_FAILED", True, False)
    assert (error.service, error.detail) == ("Heat", "it cannot reach 10.0.0.5:8042")
    assert patch_parameters(cloud, pair.name, {"active": "db_b"}, 10).status == "UPDATE_COMPLETE"


def test_a_patch_that_heat_refuses_while_a_service_is_away_is_sent_again(cloud, pair, emulator):
    emulator.api_fault("stack_patch", status=400, says=f"Property error: resources.lost: {AWAY}")
    patch_parameters(cloud, pair.name, {"active": "db_b"}, 10)
    assert len(patches(emulator)) == 1
    assert parameters(cloud, pair.name)["active"] == "db_b"


def test_the_failure_of_an_earlier_update_is_not_taken_for_that_of_this_one(
    cloud, pair, emulator, monkeypatch
):
    """Heat accepts the update, and still shows the failed one when it should have begun."""
    emulator.api_fault("stack_patch", "fail")
    with pytest.raises(CloudError):
        patch_parameters(cloud, pair.name, {"active": "db_b"}, 10)
    failed, sent = cloud.heat.stacks.get(pair.name), len(patches(emulator))
    shown = stack_updates.stack_shown

    def late(*arguments):
        return failed if len(patches(emulator)) == sent + 1 else shown(*arguments)

    monkeypatch.setattr(stack_updates, "SETTLE", 0.0)
    monkeypatch.setattr(stack_updates, "stack_shown", late)

    assert patch_parameters(cloud, pair.name, {"active": "db_b"}, 10).status == "UPDATE_COMPLETE"
    assert len(patches(emulator)) == sent + 2


def test_an_update_that_runs_is_followed_in_heat_s_list(cloud, pair, emulator, monkeypatch):
    """To show a stack takes Heat much longer than to list it."""
    seen: list[str] = []
    shown, listed = stack_updates.stack_shown, type(cloud).listed_status

    def show(*arguments: Any) -> Any:
        stack = shown(*arguments)
        seen.append(stack.stack_status)
        return stack

    def status(*arguments: Any) -> Any:
        found = listed(*arguments)
        seen.append(f"listed {found}")
        return found

    emulator.set_latency(stack_patch=1)
    monkeypatch.setattr(stack_updates, "stack_shown", show)
    monkeypatch.setattr(type(cloud), "listed_status", status)

    assert patch_parameters(cloud, pair.name, {"active": "db_b"}, 10).status == "UPDATE_COMPLETE"
    assert seen.count("listed UPDATE_IN_PROGRESS") > 1
    assert "UPDATE_IN_PROGRESS" not in seen, seen


@pytest.mark.parametrize("status", [None, 400, 403, 404, 500, 503])
def test_a_stack_that_heat_does_not_list_is_asked_for(cloud, pair, emulator, monkeypatch, status):
    """A stack in another one is not listed, the rights may not reach so far, or the list is
    broken."""
    send, asked = type(cloud).send, []

    def sent(self: Any, service: str, method: str, path: str, *more: Any, **options: Any) -> Any:
        if (service, path) != ("Heat", "/stacks"):
            return send(self, service, method, path, *more, **options)
        asked.append(path)
        if status is None:
            return SimpleNamespace(json=lambda: {"stacks": []})
        raise CloudError("BAD_REQUEST", "no list", retryable=False, http_status=status)

    emulator.set_latency(stack_patch=1)
    monkeypatch.setattr(type(cloud), "send", sent)
    assert patch_parameters(cloud, pair.name, {"active": "db_b"}, 8).status == "UPDATE_COMPLETE"
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("wanted", "shown", "same"),
    [
        ("a", "a", True),
        ("a", "b", False),
        (3, "3", True),
        (3, "3.0", True),
        (3, "x", False),
        (True, "True", True),
        (True, "false", False),
        (False, "no", True),
        (["a", "b"], "a,b", True),
        (["a"], '["a"]', True),
        ({"k": 1}, '{"k": 1}', True),
        ({"k": 1}, "{'k': 1}", False),
    ],
)
def test_values_are_compared_as_heat_shows_them(wanted, shown, same):
    assert same_value(wanted, shown) is same


def test_an_update_that_ends_in_a_server_error_may_be_under_another_s_trust() -> None:
    """Heat makes the trust anew when another user updates; a trust may not make one (HTTP 500)."""

    class Stacks:
        def get(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(
                identifier="payments/1",
                stack_status="CREATE_COMPLETE",
                updated_time=None,
                parameters={"active": "db_a"},
            )

        def update(self, *_: Any, **__: Any) -> Any:
            raise CloudError("SERVER_ERROR", "RemoteError (HTTP 500)")

    def wait(probe: Any, **_: Any) -> Any:
        return probe()

    cloud: Any = SimpleNamespace(
        guard=Unguarded(),
        heat=SimpleNamespace(stacks=Stacks()),
        shared=lambda *_: [],
        wait=wait,
        settings=Settings(),
    )

    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, "payments/1", {"active": "db_b"}, 5)

    assert raised.value.code == "SERVER_ERROR"
    assert "another user updated the stack last" in raised.value.remedy


# -- what Heat leaves, and what it takes back


def test_an_update_that_heat_leaves_in_progress_is_sent_again(cloud, pair, emulator):
    emulator.api_fault("stack_patch", "stuck")
    patched = patch_parameters(cloud, pair.name, {"active": "db_b"}, 2)
    assert (patched.status, patched.adopted) == ("UPDATE_COMPLETE", False)
    assert len(patches(emulator)) == 2


def test_an_update_of_an_earlier_attempt_that_heat_left_is_sent_again(cloud, pair, emulator):
    emulator.api_fault("stack_patch", "stuck")
    stack = cloud.heat.stacks.get(pair.name)
    cloud.heat.stacks.update(stack.identifier, existing=True, parameters={"active": "db_b"})
    assert patch_parameters(cloud, pair.name, {"active": "db_b"}, 2).status == "UPDATE_COMPLETE"


def test_an_update_that_makes_progress_is_not_sent_again(cloud, pair, emulator, monkeypatch):
    """A server that starts slowly has events of its own."""
    emulator.set_latency(stack_patch=1.5)
    looks: list[SimpleNamespace] = []

    def listed(*_: Any, **__: Any) -> list[Any]:
        looks.append(SimpleNamespace(id=len(looks)))
        return looks[-1:]

    monkeypatch.setattr(cloud.heat.events, "list", listed)
    patch_parameters(cloud, pair.name, {"active": "db_b"}, 2)
    assert len(looks) > 1
    assert len(patches(emulator)) == 1


def test_a_stack_that_stays_in_progress_is_named_with_what_ends_it(cloud, pair, emulator):
    """As an engine without convergence answers: it takes no other update."""
    emulator.api_fault("stack_patch", "stuck")
    stack = cloud.heat.stacks.get(pair.name)
    cloud.heat.stacks.update(stack.identifier, existing=True, parameters={"active": "db_b"})
    emulator.api_fault("stack_patch", status=409, times=99)
    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, pair.name, {"active": "db_b"}, 1)
    assert raised.value.code == "TIMEOUT"
    assert "UPDATE_IN_PROGRESS" in raised.value.message
    assert "cancel the update of the stack without a rollback" in raised.value.remedy


def test_an_update_that_heat_took_back_is_reported_with_its_reason(cloud, pair, emulator):
    """Two other clients come between, and Heat goes back to what the first of them wanted."""
    emulator.set_latency(stack_patch=0.6)

    def others() -> None:
        stack = cloud.heat.stacks.get(pair.name)
        update = cloud.heat.stacks.update
        update(stack.identifier, existing=True, parameters={"active": "theirs"})
        emulator.api_fault("stack_patch", "fail", says="no valid host")
        wanted = {"parameters": {"active": "other"}, "disable_rollback": False}
        update(stack.identifier, existing=True, **wanted)

    later = threading.Timer(0.2, others)
    later.start()
    try:
        with pytest.raises(CloudError) as raised:
            patch_parameters(cloud, pair.name, {"active": "db_b"}, 20)
    finally:
        later.join()
    assert raised.value.code == "STACK_FAILED"
    assert "rolled an update back" in raised.value.message
    assert "no valid host" in raised.value.message
