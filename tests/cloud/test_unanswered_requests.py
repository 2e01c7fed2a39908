# SPDX-License-Identifier: Apache-2.0
"""A request without an answer is looked for before another one is sent: it may be queued in the
service, and take effect later."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, Fate
from mistral_failover.cloud.servers import delete_server, server_state, stop
from mistral_failover.cloud.stack_members import members
from mistral_failover.cloud.stack_updates import patch_parameters, replace_member
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.cloud.volumes import attach, detach
from mistral_failover.lab.emulator.client import EmulatorClient
from support.emulated import Pair
from support.nova import nova_of

TIMEOUT = 0.15  # seconds after which a call counts as not answered
LATE = 4 * TIMEOUT  # when a request that was not answered takes effect
GIVEN_UP = 3 * LATE


@pytest.fixture
def hasty(cloud: Cloud) -> Cloud:
    """The adapters, which wait for an answer for a short time only."""
    cloud.project_id  # noqa: B018 - the session's own calls come before
    cloud.newest("Nova")
    cloud.session.timeout = TIMEOUT
    cloud.settings = dataclasses.replace(
        cloud.settings, http_timeout=TIMEOUT, repeat_after=GIVEN_UP, poll_ceiling=TIMEOUT / 3
    )
    return cloud


def sent(emulator: EmulatorClient, method: str, path: str) -> int:
    """How many requests arrived, also those that were never answered."""
    return sum(
        event["method"] == method and path in event["path"]
        for event in emulator.audit()
        if event["kind"] == "request"
    )


def begun(emulator: EmulatorClient, kind: str) -> int:
    return sum(event["kind"] == kind for event in emulator.audit())


ATTACHMENTS = "os-volume_attachments"
WAYS: list[tuple[str, dict[str, Any]]] = [
    ("queue", {"seconds": LATE}),  # late, and not answered in time
    ("hold", {"seconds": LATE}),
    ("mute", {"seconds": LATE}),  # at once, and not answered in time
    ("drop", {}),  # at once, and the connection breaks
    ("lost", {"status": 502}),  # at once, and a proxy answers
]
every_way = pytest.mark.parametrize(("fault", "more"), WAYS, ids=[name for name, _ in WAYS])
but_for_queues = pytest.mark.parametrize(
    ("fault", "more"), WAYS[1:], ids=[name for name, _ in WAYS[1:]]
)


@every_way
def test_an_attach_that_is_not_answered_is_asked_for_once(
    hasty: Cloud, pair: Pair, emulator: EmulatorClient, fault: str, more: dict[str, Any]
) -> None:
    """Asked for again after each timeout, six stood in the queue of the compute service."""
    emulator.set_latency(rpc_timeout=60)
    emulator.api_fault("attach", fault, times=9, **more)

    assert attach(hasty, pair.volume, pair.a, 10)["server_id"] == pair.a

    emulator.clear_api_faults()
    time.sleep(LATE)
    assert sent(emulator, "POST", ATTACHMENTS) == 1
    assert begun(emulator, "attach_begin") == 1
    (listed,) = list(nova_of(hasty).volume_attachments(pair.a))
    assert listed.attachment_id


class Heir(Unguarded):
    """The guard of an owner that found a request of a former one."""

    def __init__(self, unsettled: float) -> None:
        super().__init__()
        self._until = time.monotonic() + unsettled

    def unsettled(self) -> float:
        return self._until - time.monotonic()

    def ask(self, asked: str) -> tuple[float, int]:
        return self.permit(asked), 0

    def ended(self, number: int, fate: Fate) -> None:
        pass


@contextmanager
def queued(emulator: EmulatorClient, cloud: Cloud, pair: Pair, seconds: float) -> Iterator[None]:
    """The attach of a former owner is in the queue of the compute service. The next owner waits
    long enough for it, on a busy machine too."""
    cloud.session.timeout = 5
    cloud.session.guard = Heir(8 * seconds)
    emulator.set_latency(rpc_timeout=60)
    emulator.api_fault("attach", "queue", seconds=seconds)
    post = partial(nova_of(cloud).create_volume_attachment, pair.a, volume=pair.volume)
    former = threading.Thread(target=post)
    former.start()
    while begun(emulator, "fault_applied") == 0:
        time.sleep(0.005)
    yield
    former.join()


def test_an_attach_that_another_owner_takes_up_is_looked_for(
    hasty: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    with queued(emulator, hasty, pair, TIMEOUT / 2):
        assert attach(hasty, pair.volume, pair.a, 10, unknown=True)["server_id"] == pair.a

    assert sent(emulator, "POST", ATTACHMENTS) == 1


def test_an_attach_that_was_lost_is_asked_for_again_when_nothing_is_seen_of_it(
    hasty: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    hasty.session.timeout = 5
    hasty.settings = dataclasses.replace(hasty.settings, repeat_after=20)
    emulator.api_fault("attach", "error", status=503)
    began = time.monotonic()

    attach(hasty, pair.volume, pair.a, 30)

    assert sent(emulator, "POST", ATTACHMENTS) == 2
    assert time.monotonic() - began < 20, "who answers 503 has no queue to be waited for"


def test_an_attach_of_which_nothing_is_seen_to_the_end_is_transient_and_unknown(
    hasty: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    hasty.session.timeout = 1
    hasty.settings = dataclasses.replace(hasty.settings, http_timeout=1, repeat_after=60)
    emulator.set_latency(rpc_timeout=60)
    emulator.api_fault("attach", "queue", seconds=60)

    with pytest.raises(CloudError) as raised:
        attach(hasty, pair.volume, pair.a, 4)

    error = raised.value
    assert (error.code, error.transient, error.unknown) == ("TIMEOUT", True, True)
    assert (error.service, error.detail) == ("Nova", "no answer within 1 s")


@but_for_queues
def test_a_detach_that_is_not_answered_is_asked_for_once(
    hasty: Cloud, pair: Pair, emulator: EmulatorClient, fault: str, more: dict[str, Any]
) -> None:
    attach(hasty, pair.volume, pair.a, 10)
    emulator.api_fault("detach", fault, times=9, **more)

    detach(hasty, pair.volume, pair.a, 10)

    assert sent(emulator, "DELETE", ATTACHMENTS) == 1
    assert begun(emulator, "detach_begin") == 1


def test_a_detach_waits_for_an_attach_that_an_earlier_attempt_may_have_asked_for(
    hasty: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    with queued(emulator, hasty, pair, TIMEOUT / 2):
        detach(hasty, pair.volume, pair.a, 10)

    assert [begun(emulator, kind) for kind in ("attach_begin", "detached")] == [1, 1]
    assert list(nova_of(hasty).volume_attachments(pair.a)) == []


def test_who_only_looks_to_the_end_for_an_earlier_request_goes_on_later(
    hasty: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    """The time of an operation may be shorter than that of a request in a queue."""
    hasty.session.guard = Heir(60)

    with pytest.raises(CloudError) as raised:
        attach(hasty, pair.volume, pair.a, 0.5, unknown=True)

    error = raised.value
    assert (error.code, error.transient, error.unknown) == ("TIMEOUT", True, True)
    assert sent(emulator, "POST", ATTACHMENTS) == 0


def _stopped(cloud: Cloud, pair: Pair) -> bool:
    return stop(cloud, pair.a, 10).proven


def _deleted(cloud: Cloud, pair: Pair) -> bool:
    return delete_server(cloud, pair.a, 10).proven and not server_state(cloud, pair.a).exists


def _patched(cloud: Cloud, pair: Pair) -> bool:
    patched = patch_parameters(cloud, pair.name, {"active": "db_b"}, 10)
    return patched.status == "UPDATE_COMPLETE"


@but_for_queues
@pytest.mark.parametrize(
    ("operation", "done", "method", "path"),
    [
        ("stop", _stopped, "POST", "{}/action"),
        ("delete_server", _deleted, "DELETE", "servers/{}"),
        ("stack_patch", _patched, "PATCH", "/stacks/"),
    ],
)
def test_a_request_that_is_not_answered_is_sent_once(
    hasty: Cloud,
    pair: Pair,
    emulator: EmulatorClient,
    operation: str,
    done: Callable[[Cloud, Pair], bool],
    method: str,
    path: str,
    fault: str,
    more: dict[str, Any],
) -> None:
    emulator.set_latency(**{operation: 0.1})
    emulator.api_fault(operation, fault, times=9, **more)

    assert done(hasty, pair)

    emulator.clear_api_faults()
    assert sent(emulator, method, path.format(pair.a)) == 1


def test_an_update_that_was_lost_is_asked_for_again(
    hasty: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    emulator.api_fault("stack_patch", "error", status=503)

    assert patch_parameters(hasty, pair.name, {"active": "db_b"}, 10).status == "UPDATE_COMPLETE"

    assert sent(emulator, "PATCH", "/stacks/") == 2


@but_for_queues
@pytest.mark.parametrize("operation", ["mark_unhealthy", "stack_patch"])
def test_a_member_is_replaced_once_whichever_request_is_not_answered(
    hasty: Cloud,
    group: str,
    emulator: EmulatorClient,
    operation: str,
    fault: str,
    more: dict[str, Any],
) -> None:
    emulator.api_fault(operation, fault, times=9, **more)
    one = members(hasty, group, autoscaling_group="db_servers")[0]

    replaced = replace_member(
        hasty,
        group,
        one.name,
        autoscaling_group="db_servers",
        resource=None,
        server_id=one.server_id,
        reason="a test",
        limit=20,
    )

    assert replaced.server != one.server_id
    assert sent(emulator, "PATCH", "/stacks/") == 2, "the mark and the update"
    assert len(members(hasty, group, autoscaling_group="db_servers")) == 2
