# SPDX-License-Identifier: Apache-2.0
"""The private broker is a real one, is alone, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import kombu
import pytest

from testbroker.broker import PORTS, PrivateBroker
from testcloud import pids
from testcloud.errors import CloudError

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]


def test_what_it_took_outlives_a_kill(broker: PrivateBroker) -> None:
    with kombu.Connection(broker.url, transport_options={"confirm_publish": True}) as connection:
        connection.SimpleQueue("kept").put({"some": "thing"})
    before = broker.pid

    broker.kill()
    assert broker.pid is None
    broker.start()

    assert broker.pid != before
    assert broker.depth("kept") == 1
    with kombu.Connection(broker.url) as connection:
        queue = connection.SimpleQueue("kept")
        message = queue.get(timeout=5)
        message.ack()
        assert message.payload == {"some": "thing"}
        queue.queue.delete()


def test_it_has_ports_of_its_own_and_leaves_no_process(tmp_path: Path) -> None:
    with PrivateBroker(tmp_path / "another") as another:
        assert another.port in PORTS
        found = [pids.identify(another.pid or 0)]
        command = Path(f"/proc/{another.pid}/cmdline").read_bytes()
        assert another.password.encode() not in command
    assert [one for one in found if one is None or one.members()] == []
    assert list(another.run.glob("*.json")) == []


def test_what_rabbitmqctl_refuses_is_an_error_without_a_secret(broker: PrivateBroker) -> None:
    with pytest.raises(CloudError, match="CONTROL_FAILED") as raised:
        broker.permit("nobody", configure="^$", write="^$", read="^$")

    assert "nobody" in str(raised.value)
    assert broker.password not in str(raised.value)
