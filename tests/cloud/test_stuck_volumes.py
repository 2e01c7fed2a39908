# SPDX-License-Identifier: Apache-2.0
"""Volumes whose attach or detach was accepted and never ends, and what ends it."""

from __future__ import annotations

from typing import Any

import pytest
from openstack import exceptions

from mistral_failover.cloud.detaching import Release
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.volumes import attach, detach
from support.operators import Operator


@pytest.fixture
def operator(emulator: Any) -> Operator:
    """An administrator of the cloud."""
    return Operator(emulator)


def stuck(action: Any, *given: Any) -> CloudError:
    with pytest.raises(CloudError) as raised:
        action(*given)
    assert raised.value.code == "VOLUME_STUCK"
    assert raised.value.blocked
    return raised.value


def test_an_attach_that_nova_gave_up_without_a_word_is_undone_when_it_is_called_attached(
    cloud: Any, pair: Any, emulator: Any, operator: Operator
) -> None:
    emulator.api_fault("attach", "stuck")

    error = stuck(attach, cloud, pair.volume, pair.a, 0.4)

    assert f"openstack volume set --state in-use --attached {pair.volume}" in error.remedy
    assert pair.a in error.message
    operator.set_volume(pair.volume, "in-use", "attached")
    detach(cloud, pair.volume, pair.a, 5)
    assert operator.attachments(pair.volume) == []
    assert attach(cloud, pair.volume, pair.b, 5)["server_id"] == pair.b


def test_a_detach_that_nova_gave_up_without_a_word_is_asked_for_again(
    cloud: Any, pair: Any, emulator: Any, operator: Operator
) -> None:
    attach(cloud, pair.volume, pair.a, 5)
    emulator.api_fault("detach", "stuck")

    error = stuck(detach, cloud, pair.volume, pair.a, 0.4)

    assert pair.a in error.message
    assert [row["status"] for row in operator.attachments(pair.volume)] == ["detaching"]
    operator.delete_server(pair.a)
    detach(cloud, pair.volume, pair.a, 5)
    assert attach(cloud, pair.volume, pair.b, 5)["server_id"] == pair.b


@pytest.mark.parametrize(("task", "deleted"), [("powering-off", True), ("image_uploading", False)])
def test_only_a_stop_that_never_ends_tells_of_a_dead_host(
    cloud: Any,
    pair: Any,
    operator: Operator,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    deleted: bool,
) -> None:
    """An image of a server that is off is made by a host that is well."""
    attach(cloud, pair.volume, pair.a, 5)
    words = f"Cannot 'detach_volume' instance {pair.a} while it is in task_state {task}"

    def refuse(*_: Any, **__: Any) -> None:
        raise exceptions.ConflictException(words, http_status=409)

    monkeypatch.setattr(cloud.compute, "delete_volume_attachment", refuse)
    release = Release(off="it is off", fenced=True, delete_server=True)

    if deleted:
        detach(cloud, pair.volume, pair.a, 10, release)
    else:
        with pytest.raises(CloudError) as raised:
            detach(cloud, pair.volume, pair.a, 2, release)
        assert raised.value.code in ("TIMEOUT", "VOLUME_STUCK")
    assert operator.server_exists(pair.a) is not deleted
