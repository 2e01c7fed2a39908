# SPDX-License-Identifier: Apache-2.0
"""The in-process driver of oslo.messaging, driven through oslo.messaging itself."""

import threading
from collections.abc import Iterator

import pytest

from mistral_failover.embedded.transport import Hub

from mistral_failover.embedded.transport import InProcessMessage  # isort: skip - boots

import oslo_messaging
from oslo_config import cfg


class Endpoint:
    def __init__(self) -> None:
        self.seen: list = []
        self.arrived = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def double(self, ctxt: dict, value: int) -> int:
        return value * 2

    def echo(self, ctxt: dict, value: object) -> object:
        return value

    def fail(self, ctxt: dict) -> None:
        raise ValueError("of its own kind")

    def note(self, ctxt: dict, value: object) -> None:
        self.gate.wait(5)
        self.seen.append(value)
        self.arrived.release()

    def hang(self, ctxt: dict) -> None:
        self.gate.wait(5)


class Wire:
    """One transport with servers on topics of this test's own."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.transport = oslo_messaging.get_rpc_transport(cfg.CONF, url="failover-inprocess://")
        self._servers: list = []

    def serve(self, name: str = "one") -> Endpoint:
        endpoint = Endpoint()
        server = oslo_messaging.get_rpc_server(
            self.transport, oslo_messaging.Target(topic=self.topic, server=name), [endpoint]
        )
        server.start()
        self._servers.append((server, endpoint))
        return endpoint

    def client(self, **target: object):
        client = oslo_messaging.get_rpc_client(
            self.transport, oslo_messaging.Target(topic=self.topic)
        )
        return client.prepare(**target)

    def close(self) -> None:
        for server, endpoint in self._servers:
            endpoint.gate.set()
            server.stop()
            server._work_executor.shutdown(wait=False)


@pytest.fixture
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    wire = Wire(request.node.name)
    yield wire
    wire.close()


def test_a_call_brings_back_what_the_endpoint_returned(wire):
    wire.serve()
    assert wire.client().call({}, "double", value=21) == 42


def test_values_cross_as_json_as_they_would_over_rabbitmq(wire):
    wire.serve()
    assert wire.client().call({}, "echo", value=(1, {2: "x"})) == [1, {"2": "x"}]


def test_an_endpoints_exception_reaches_the_caller_as_it_is(wire):
    wire.serve()
    with pytest.raises(ValueError, match="of its own kind"):
        wire.client().call({}, "fail")


def test_a_call_without_an_answer_times_out(wire):
    wire.serve().gate.clear()
    with pytest.raises(oslo_messaging.MessagingTimeout):
        wire.client(timeout=0.05).call({}, "hang")


def test_messages_sent_before_there_is_a_server_arrive_in_order(wire):
    for n in range(3):
        wire.client().cast({}, "note", value=n)
    endpoint = wire.serve()
    for _ in range(3):
        assert endpoint.arrived.acquire(timeout=5)
    assert sorted(endpoint.seen) == [0, 1, 2]


def test_one_topic_is_shared_by_its_servers_and_each_message_goes_to_one(wire):
    one, two = wire.serve("one"), wire.serve("two")
    for n in range(10):
        wire.client().call({}, "note", value=n)
    assert sorted(one.seen + two.seen) == list(range(10))
    # Other topics take turns too, so perhaps not five each.
    assert min(len(one.seen), len(two.seen)) > 0


def test_a_message_to_a_named_server_reaches_that_one(wire):
    one, two = wire.serve("one"), wire.serve("two")
    for n in range(4):
        wire.client(server="two").call({}, "note", value=n)
    assert (one.seen, two.seen) == ([], [0, 1, 2, 3])


def test_a_fanout_reaches_every_server(wire):
    endpoints = [wire.serve("one"), wire.serve("two")]
    wire.client(fanout=True).cast({}, "note", value="all")
    assert all(e.arrived.acquire(timeout=5) for e in endpoints)
    assert [e.seen for e in endpoints] == [["all"], ["all"]]


def test_notifications_are_refused_rather_than_lost(wire):
    with pytest.raises(NotImplementedError):
        wire.transport._driver.send_notification(None, {}, {}, 1.0)
    with pytest.raises(NotImplementedError):
        wire.transport._driver.listen_for_notifications([], None, 1, None)


class Listener:
    def __init__(self) -> None:
        self.messages: list[InProcessMessage] = []

    def on_incoming_callback(self, messages: list[InProcessMessage]) -> None:
        self.messages += messages


def test_the_hub_is_idle_when_the_endpoints_have_finished():
    hub, listener, key = Hub(), Listener(), ("exchange", "topic", None)
    hub.subscribe(listener, (key,))
    hub.deliver(key, InProcessMessage({}, {}, None))
    assert not hub.wait_idle(0)
    listener.messages[0].reply()
    assert hub.wait_idle(0)


def test_a_listener_that_left_gets_nothing_more():
    hub, listener, key = Hub(), Listener(), ("exchange", "topic", None)
    hub.subscribe(listener, (key,))
    hub.unsubscribe(listener)
    hub.deliver(key, InProcessMessage({}, {}, None))
    assert listener.messages == []
    later = Listener()
    hub.subscribe(later, (key,))
    assert len(later.messages) == 1
