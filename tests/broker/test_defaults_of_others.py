# SPDX-License-Identifier: Apache-2.0
"""A virtual host whose administrator has chosen another type of queue for all that name none."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from broker.rig import Rig
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

    counts = rig.play(node)

    kinds = rig.broker.control("list_queues", "-p", urlsplit(elsewhere).path[1:], "type").split()
    assert set(kinds) - {"type"} == {"classic"}
    assert node.counts() == counts
