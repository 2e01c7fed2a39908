# SPDX-License-Identifier: Apache-2.0
"""A virtual host whose administrator has chosen another type of queue for all that name none."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from broker.rig import PATIENCE, Rig
from faults.slot import until
from testbroker.broker import ADMINISTRATOR, PrivateBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]


@pytest.fixture(params=["quorum", "stream", "classic"])
def elsewhere(broker: PrivateBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of such a virtual host."""
    name = f"defaults-{request.param}"
    broker.control("add_vhost", name, "--default-queue-type", request.param)
    broker.control("set_permissions", "-p", name, ADMINISTRATOR, ".*", ".*", ".*")
    parts = urlsplit(broker.url)
    yield parts._replace(path=f"/{name}").geturl()
    broker.control("delete_vhost", name)


def test_a_command_a_new_epoch_and_a_heartbeat_arrive(rig: Rig, elsewhere: str) -> None:
    rig.url = elsewhere
    node = rig.node(url=elsewhere)
    node.start()

    first = rig.increment(node)
    assert rig.carry_out(first).code == ""
    assert rig.carry_out(rig.deposition(node, 2)).code == ""
    until(lambda: node.counts()["stopped"], PATIENCE, lambda: "deposed")
    second = rig.increment(node, epoch=2)
    assert rig.carry_out(second).code == ""

    heard = rig.channel().heard(node.address)
    assert heard is not None
    kinds = rig.broker.control("list_queues", "-p", urlsplit(elsewhere).path[1:], "type").split()
    assert set(kinds) - {"type"} == {"classic"}
    assert node.counts() == {first.order["id"]: 1, "stopped": 1, second.order["id"]: 1}
