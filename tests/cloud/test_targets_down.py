# SPDX-License-Identifier: Apache-2.0
"""An attach whose server dies while it waits ends with TARGET_DOWN, but not while a request may
still take effect unseen: another server gets the volume next."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.cloud import volumes
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import delete_server
from mistral_failover.cloud.url_paths import url_path
from mistral_failover.cloud.volumes import attach
from mistral_failover.lab.emulator.client import EmulatorClient
from support.emulated import Pair
from support.nova import nova_of
from support.operators import Operator
from support.waiting import until

SILENCE = "its agent has sent no heartbeat for 61 s"


def host_of(emulator: EmulatorClient, server_id: str) -> str:
    return str(emulator.guests()[server_id]["host"])


def requests(emulator: EmulatorClient) -> int:
    """How often Nova was asked to attach."""
    return sum(
        event["method"] == "POST" and "os-volume_attachments" in event["path"]
        for event in emulator.audit()
        if event["kind"] == "request"
    )


def down(cloud: Cloud, pair: Pair, **more: Any) -> CloudError:
    """The error of an attach to db_a, which is TARGET_DOWN."""
    with pytest.raises(CloudError) as raised:
        attach(cloud, pair.volume, pair.a, 10, **more)
    error = raised.value
    assert error.code == "TARGET_DOWN", error
    assert error.transient
    assert error.unknown
    assert pair.a in error.service
    return error


@pytest.fixture
def administrator(connect: Callable[..., Cloud]) -> Cloud:
    """A cloud whose policy shows the state of hosts."""
    return connect("admin")


def test_a_host_that_nova_shows_as_dead_is_asked_for_nothing(
    administrator: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    host = host_of(emulator, pair.a)
    emulator.fault("host", host, "compute_down")

    error = down(administrator, pair)

    assert requests(emulator) == 0
    assert error.target == {
        "server": pair.a,
        "why": f"its host {host} is UNKNOWN",
        "evidence": "server",
        "held": False,
    }
    assert f"on host {host}" in error.service


def test_a_server_that_was_deleted_is_gone_for_good(
    cloud: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    Operator(emulator).delete_server(pair.a)

    error = down(cloud, pair)

    assert error.target is not None
    assert (error.target["evidence"], error.target["held"]) == ("gone", False)
    assert error.target["why"] == "its server does not exist"


def test_a_host_that_dies_with_an_attach_may_still_have_it(
    administrator: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    host = host_of(emulator, pair.a)
    emulator.set_latency(attach=30)
    nova_of(administrator).create_volume_attachment(pair.a, volume=pair.volume)
    emulator.fault("host", host, "compute_down")

    error = down(administrator, pair)

    assert error.target is not None
    assert error.target["held"]


def test_where_the_host_is_hidden_a_silent_agent_tells_it(
    cloud: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    emulator.set_latency(rpc_timeout=0)
    emulator.fault("host", host_of(emulator, pair.a), "power_off")

    error = down(cloud, pair, silence=lambda: SILENCE)

    assert error.detail == SILENCE
    assert error.target is not None
    assert (error.target["evidence"], error.target["held"]) == ("agent", False)


def test_a_silent_agent_alone_prevents_no_attach(cloud: Cloud, pair: Pair) -> None:
    assert attach(cloud, pair.volume, pair.a, 10, silence=lambda: SILENCE)["server_id"] == pair.a


@pytest.mark.parametrize(
    ("fault", "why"),
    [("delete", "its server does not exist"), ("error", "its server is ERROR")],
)
def test_a_server_that_nova_attaches_nothing_to_is_down(
    cloud: Cloud, connect: Callable[..., Cloud], pair: Pair, fault: str, why: str
) -> None:
    if fault == "delete":
        assert delete_server(cloud, pair.a, 10).proven
    else:
        nova_of(connect("admin")).reset_server_state(pair.a, "error")

    error = down(cloud, pair)

    assert error.detail == why


def test_a_compute_service_that_answers_no_request_is_down(
    cloud: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    """The guest lives, and Nova hides the host: only the requests themselves tell."""
    cloud.project_id  # noqa: B018 - the session's own calls come before
    cloud.session.timeout = 0.1
    cloud.settings = dataclasses.replace(cloud.settings, repeat_after=0.3, poll_ceiling=0.03)
    emulator.set_latency(rpc_timeout=2)
    emulator.fault("host", host_of(emulator, pair.a), "compute_down")

    error = down(cloud, pair)

    # The audit has a request once the emulator has given it up.
    until(lambda: requests(emulator) >= 2)
    assert requests(emulator) == 2
    assert error.target is not None
    assert error.target["evidence"] == "requests"


def test_no_other_server_is_named_while_a_request_may_still_take_effect(
    administrator: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    cloud, host = administrator, host_of(emulator, pair.a)
    cloud.project_id  # noqa: B018 - the session's own calls come before
    cloud.session.timeout = 0.1
    emulator.set_latency(rpc_timeout=60)
    emulator.api_fault("attach", "queue", seconds=30)
    dying = threading.Timer(0.2, emulator.fault, ("host", host, "compute_down"))
    dying.start()
    began = time.monotonic()

    error = down(cloud, pair)

    dying.join()
    late = time.monotonic() - began > cloud.settings.repeat_after
    assert error.target is not None
    assert error.target["held"] or late


def test_a_server_that_a_task_keeps_busy_is_waited_for(
    cloud: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    emulator.set_latency(server_task=0.6)
    copy = {"createImage": {"name": "copy"}}
    cloud.send("Nova", "POST", url_path("servers", pair.a, "action"), copy)

    assert attach(cloud, pair.volume, pair.a, 10)["server_id"] == pair.a


@pytest.mark.parametrize(
    ("status", "says", "evidence"),
    [
        (403, "The maximum allowed number of disk devices (26) has been exceeded.", "refused"),
        (400, "Instance and volume are not in the same availability_zone.", "refused"),
        (403, "Key manager: not allowed.", "refused"),
        (409, "Instance is locked", "state"),
        (409, "Cannot 'attach_volume' instance while it is in vm_state rescued", "state"),
    ],
)
def test_a_server_to_which_nova_refuses_the_volume_lets_another_one_have_it(
    cloud: Cloud, pair: Pair, emulator: EmulatorClient, status: int, says: str, evidence: str
) -> None:
    emulator.api_fault("attach", status=status, says=says)

    with pytest.raises(CloudError) as raised:
        attach(cloud, pair.volume, pair.a, 10)

    error = raised.value
    assert (error.code, error.transient, error.unknown) == ("TARGET_DOWN", True, False)
    assert says.rstrip(".") in error.message
    assert error.message.count("Could not attach") == 1
    assert error.target is not None
    assert (error.target["evidence"], error.target["held"]) == (evidence, False)


def test_a_refusal_of_the_target_ends_only_the_attach_to_it(
    cloud: Cloud, pair: Pair, emulator: EmulatorClient
) -> None:
    emulator.api_fault("attach", status=403, says="The maximum allowed number of disk devices.")
    with pytest.raises(CloudError):
        attach(cloud, pair.volume, pair.a, 10)

    assert attach(cloud, pair.volume, pair.b, 10)["server_id"] == pair.b


def test_a_refusal_because_of_the_volume_passes_over_no_server(
    cloud: Cloud, pair: Pair, emulator: EmulatorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The volume breaks between the look and the request."""
    operator = Operator(emulator)

    def breaks(point: str) -> None:
        if point == "attach.before":
            operator.set_volume(pair.volume, "error")

    monkeypatch.setattr(volumes, "reach", breaks)

    with pytest.raises(CloudError) as raised:
        attach(cloud, pair.volume, pair.a, 10)

    assert raised.value.code == "VOLUME_ERROR"
