# SPDX-License-Identifier: Apache-2.0
"""How the broker's URL becomes a connection, and what connections are used again."""

import ssl
import threading
import time
import uuid

import pytest
from kombu.entity import Queue
from kombu.messaging import Consumer

from mistral_failover.agent import wire
from mistral_failover.agent.broker import BadUrl, Broker, forget, wait
from mistral_failover.agent.channel import links as pool
from mistral_failover.agent.channel.links import BrokerUnavailable, Links, links_to
from mistral_failover.agent.wire import Address

TO = Address("group", "payments", "db_a", "server")
SEALED = wire.seal("notice", {"member": "db_a", "epoch": 1}, b"k")


@pytest.fixture(params=["memory", "filesystem"])
def broker(request, tmp_path):
    folder = f"filesystem://{tmp_path}/broker"
    return Broker(f"memory://{uuid.uuid4().hex}" if request.param == "memory" else folder)


# -- URLs


def test_a_url_shows_the_address_and_the_user_but_no_password():
    broker = Broker("amqp://agent%40a:pass%2Fword@broker.example.org/failover")
    connection = broker.connection()
    assert (connection.hostname, connection.port) == ("broker.example.org", 5672)
    assert (connection.userid, connection.password) == ("agent@a", "pass/word")
    assert connection.virtual_host == "failover"
    assert not connection.ssl
    assert broker.real
    assert broker.shown == "amqp://broker.example.org:5672/failover"
    assert "pass" not in repr(broker) + broker.shown + repr(connection).replace("pass**", "")


@pytest.mark.parametrize(
    ("path", "vhost"), [("", "/"), ("/", "/"), ("/%2F", "/"), ("/a%2Fb", "a/b")]
)
def test_the_path_is_the_virtual_host(path, vhost):
    assert Broker(f"amqp://host{path}").connection().virtual_host == vhost


def test_with_tls_the_brokers_certificate_is_verified(tmp_path):
    authorities = tmp_path / "ca.pem"
    authorities.touch()
    connection = Broker(f"amqps://broker.example.org/?cafile={authorities}").connection()
    assert connection.port == 5671
    assert connection.ssl == {
        "cert_reqs": ssl.CERT_REQUIRED,
        "ca_certs": str(authorities),
        "server_hostname": "broker.example.org",
    }
    assert Broker("amqps://broker.example.org").connection().ssl["ca_certs"] is None


def test_a_call_is_bounded_and_confirmed():
    options = Broker("amqp://host").connection().transport_options
    assert options["confirm_publish"] is True
    assert 0 < options["read_timeout"] <= 10
    assert 0 < options["write_timeout"] <= 10
    assert 0 < Broker("amqp://host").connection(0.5).connect_timeout <= 0.5


@pytest.mark.parametrize(
    "url",
    [
        "http://hush@host",
        "amqp://",
        "amqp://user:hush@/vhost",
        "amqp://user:hush@host:port/",
        "amqp://user:hush@host/?ssl=false",
        "amqp://user:hush@host/?cafile=/etc/hosts",
        "amqps://user:hush@host/?ssl_cert_reqs=none",
        "amqps://user:hush@host/?cafile=/no/such/file",
        "memory://user:hush@host",
        "memory://host/?polling_interval=9",
        "filesystem://",
        "filesystem:///",
        "filesystem://relative/path",
        "amqp://[::1",
    ],
)
def test_a_url_that_can_not_be_used_is_refused_without_its_password(url):
    with pytest.raises(BadUrl) as raised:
        Broker(url)
    assert "hush" not in str(raised.value)


# -- without a real broker


def collect(broker, connection, queue):
    found = []
    channel = connection.channel()
    Consumer(
        channel,
        queues=[Queue(queue, no_declare=True)],
        auto_declare=False,
        on_message=found.append,
    ).consume()
    return found


def test_a_queue_exists_until_it_is_deleted_though_somebody_still_reads_it(broker):
    reader = broker.connect()
    other = broker.connect()
    channel = other.channel()
    broker.declare_exchanges(channel)
    queue = broker.declare_commands(channel, TO, 3)
    collect(broker, reader, queue)
    assert broker.queue_exists(other, queue)
    broker.delete_queue(channel, queue)
    broker.delete_queue(channel, queue)
    assert not wait(reader, 0.05)
    assert not broker.queue_exists(reader, queue)
    broker.publish(channel, wire.COMMANDS, queue, SEALED)  # goes nowhere
    assert not broker.queue_exists(other, queue)
    assert not broker.queue_exists(other, TO.commands(4))


def test_what_was_not_acknowledged_comes_back(broker):
    sender = broker.connect()
    channel = sender.channel()
    broker.declare_exchanges(channel)
    queue = broker.declare_commands(channel, TO, 3)
    broker.publish(channel, wire.COMMANDS, queue, SEALED)
    first = broker.connect()
    found = collect(broker, first, queue)
    assert wait(first, 5)
    assert found[0].body == SEALED[0]
    first.release()
    second = broker.connect()
    again = collect(broker, second, queue)
    assert wait(second, 5)
    assert (again[0].body, again[0].headers) == SEALED
    again[0].ack()
    second.release()
    assert not collect(broker, sender, queue)
    assert not wait(sender, 0.05)


def test_the_latest_of_a_queue_is_kept_alone(broker):
    connection = broker.connect()
    channel = connection.channel()
    broker.declare_exchanges(channel)
    queue = broker.declare_notices(channel, TO, bind=True)
    for _ in range(3):
        broker.keep_latest(channel, queue)
        broker.publish(channel, wire.COMMANDS, queue, SEALED)
    assert channel.basic_get(queue=queue) is not None
    assert channel.basic_get(queue=queue) is None


def test_no_message_is_lost_or_doubled_between_threads(broker):
    setup = broker.connect()
    broker.declare_exchanges(setup.channel())
    queue = broker.declare_commands(setup.channel(), TO, 3)
    taken = []

    def send(sender):
        with broker.connect() as connection:
            channel = connection.channel()
            for number in range(25):
                text = f"{sender}-{number}".encode()
                broker.publish(channel, wire.COMMANDS, queue, (text, {}))

    def take():
        with broker.connect() as connection:
            found = collect(broker, connection, queue)
            deadline = time.monotonic() + 20
            while len(taken) < 100 and time.monotonic() < deadline:
                wait(connection, 0.02)
                while found:
                    message = found.pop()
                    taken.append(bytes(message.body))
                    message.ack()

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    threads += [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(taken) == sorted(f"{s}-{n}".encode() for s in range(4) for n in range(25))


def test_a_lost_connection_is_not_made_again_behind_its_users_back(broker):
    connection = broker.connect()
    forget(connection)
    with pytest.raises(ConnectionResetError):
        wait(connection, 0.05)
    with pytest.raises(ConnectionResetError):
        broker.queue_exists(connection, "any")


def test_two_names_are_two_brokers():
    one, other = Broker(f"memory://{uuid.uuid4().hex}"), Broker(f"memory://{uuid.uuid4().hex}")
    channel = one.connect().channel()
    one.declare_exchanges(channel)
    queue = one.declare_commands(channel, TO, 3)
    assert not other.queue_exists(other.connect(), queue)


# -- connections that are used again


@pytest.fixture
def links():
    return Links(Broker(f"memory://{uuid.uuid4().hex}"))


def test_a_connection_is_used_again_by_one_at_a_time(links):
    with links.link(1) as first, links.link(1) as second:
        assert first.connection is not second.connection
        known = {id(first.connection), id(second.connection)}
    with links.link(1) as again:
        assert id(again.connection) in known


def test_a_connection_that_failed_or_was_idle_too_long_is_not_used_again(links, monkeypatch):
    context = links.link(1)
    failed = context.__enter__()
    assert not context.__exit__(RuntimeError, RuntimeError(), None)
    with links.link(1) as second:
        assert second is not failed
    monkeypatch.setattr(pool, "IDLE", -1.0)
    with links.link(1) as third:
        assert third is not second


def test_a_connection_that_broke_while_idle_is_not_used_again(links):
    with links.link(1) as first:
        pass
    forget(first.connection)
    with links.link(1) as second:
        assert second is not first


def test_only_a_few_idle_connections_are_kept(links):
    with_all = [links.link(1) for _ in range(pool.KEPT + 3)]
    for one in with_all:
        one.__enter__()
    for one in with_all:
        one.__exit__(None, None, None)
    assert len(links._idle) == pool.KEPT


def test_the_connections_to_one_broker_are_shared_in_a_process():
    url = f"memory://{uuid.uuid4().hex}"
    assert links_to(url) is links_to(url)
    assert links_to(url) is not links_to(f"{url}x")


def test_what_the_broker_failed_is_tried_again_with_another_connection(links):
    seen = []

    def use(link):
        seen.append(link)
        if len(seen) < 3:
            raise ConnectionResetError("gone")
        return "done"

    between = []
    assert links.insist(use, lambda: 5.0, lambda: between.append(1)) == "done"
    assert len({id(link) for link in seen}) == 3
    assert len(between) == 2


def test_attempts_end_with_the_time_left_and_say_why(links):
    def use(_):
        raise ConnectionResetError("gone")

    with pytest.raises(BrokerUnavailable) as raised:
        links.insist(use, lambda: 0.0, lambda: None)
    assert "gone" in str(raised.value)
    assert not raised.value.refused


def test_what_is_no_fault_of_the_broker_is_not_tried_again(links):
    calls = []

    def use(_):
        calls.append(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        links.insist(use, lambda: 5.0, lambda: None)
    assert calls == [1]
