# SPDX-License-Identifier: Apache-2.0
"""An oslo.messaging driver for services that share one process: ``failover-inprocess://``.

The stock ``fake://`` driver polls its queues every 50 ms, some three times for each task of a
workflow. Here a message goes to a listener's callback at once, in the sender's thread; the callback
only hands it to the RPC server's thread pool, so the sender is not held up. Messages without a
listener are kept in order and delivered to the first one.

Everything that crosses is turned into JSON and back, as RabbitMQ would do, so a workflow or an
action that works here does not fail in production because a value is not JSON.
"""

import itertools
import queue
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from mistral_failover.embedded import boot

boot.init()  # importing oslo.messaging settles on a backend of oslo.service

import oslo_messaging  # noqa: E402
from oslo_messaging._drivers import base  # noqa: E402
from oslo_serialization import jsonutils  # noqa: E402

_Key = tuple[str, str, str | None]  # exchange, topic, server (None: any of the topic's servers)


def _copy(value: Any) -> Any:
    return jsonutils.loads(jsonutils.dumps(value))


def _nothing() -> None:
    """What a message does at its end before it is delivered."""


class InProcessMessage(base.RpcIncomingMessage):  # type: ignore[misc]
    """A message on its way to an RPC endpoint; the answer goes into the caller's queue."""

    def __init__(
        self, ctxt: dict[str, Any], message: dict[str, Any], replies: "queue.Queue[Any] | None"
    ) -> None:
        super().__init__(ctxt, message)
        self._replies = replies
        self.done: Callable[[], None] = _nothing  # called when the endpoint has finished

    def reply(self, reply: Any = None, failure: Any = None) -> None:
        """Answer the caller. ``failure`` is what ``sys.exc_info()`` gave.

        The RPC server calls this for casts too, where it says only that the endpoint is through.
        """
        try:
            if self._replies is not None:
                self._replies.put((_copy(reply), failure[1] if failure else None))
        finally:
            self.done()

    def requeue(self) -> None:
        """Not supported: a message belongs to exactly one server."""
        raise NotImplementedError("failover-inprocess does not put messages back")

    def heartbeat(self) -> None:
        """Nothing to keep alive: caller and server are one process."""


class InProcessListener(base.Listener):  # type: ignore[misc]
    """Takes the messages of one server (topic and server name) from the hub."""

    def __init__(self, hub: "Hub", keys: tuple[_Key, ...]) -> None:
        super().__init__(batch_size=1, batch_timeout=None, prefetch_size=0)
        self._hub = hub
        self._keys = keys

    def start(self, on_incoming_callback: Callable[[list[InProcessMessage]], None]) -> None:
        """Start receiving; waiting messages are delivered before this returns."""
        super().start(on_incoming_callback)
        self._hub.subscribe(self, self._keys)

    def stop(self) -> None:
        """Stop receiving; later messages wait for the next listener."""
        self._hub.unsubscribe(self)
        super().stop()

    def cleanup(self) -> None:
        """No connection to close."""


class Hub:
    """The listeners, and the messages that wait for one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._listeners: dict[_Key, list[InProcessListener]] = defaultdict(list)
        self._waiting: dict[_Key, deque[InProcessMessage]] = defaultdict(deque)
        self._turn = itertools.count()
        self._under_way = 0
        self._idle = threading.Condition(self._lock)

    def deliver(self, key: _Key, message: InProcessMessage) -> None:
        """Give the message to one listener (in turn), or keep it until there is one."""
        with self._lock:
            listeners = self._listeners[key]
            if listeners:
                self._hand_over(listeners[next(self._turn) % len(listeners)], message)
            else:
                self._waiting[key].append(message)

    def wait_idle(self, timeout: float) -> bool:
        """Wait until endpoints have finished with all messages; False after ``timeout`` s."""
        with self._idle:
            return self._idle.wait_for(lambda: self._under_way == 0, timeout)

    def servers(self, exchange: str, topic: str) -> list[_Key]:
        """The keys of all named servers of a topic: the receivers of a fanout."""
        with self._lock:
            return [
                k
                for k, found in self._listeners.items()
                if found and k[:2] == (exchange, topic) and k[2] is not None
            ]

    def subscribe(self, listener: InProcessListener, keys: tuple[_Key, ...]) -> None:
        """Register the listener and hand it what waits under its keys."""
        with self._lock:
            for key in keys:
                self._listeners[key].append(listener)
                waiting = self._waiting.pop(key, deque())
                while waiting:
                    self._hand_over(listener, waiting.popleft())

    def unsubscribe(self, listener: InProcessListener) -> None:
        """Forget the listener; unknown ones are no error."""
        with self._lock:
            for listeners in self._listeners.values():
                if listener in listeners:
                    listeners.remove(listener)

    def clear(self) -> None:
        """Forget listeners and waiting messages."""
        with self._lock:
            self._listeners.clear()
            self._waiting.clear()

    def _hand_over(self, listener: InProcessListener, message: InProcessMessage) -> None:
        self._under_way += 1
        message.done = self._finished
        try:
            listener.on_incoming_callback([message])
        except BaseException:
            self._finished()
            raise

    def _finished(self) -> None:
        with self._idle:
            self._under_way -= 1
            self._idle.notify_all()


# One for the process: Mistral makes a transport for each of its services and drops and remakes
# the clients' one when its API starts; all of them must meet.
HUB = Hub()


class InProcessDriver(base.BaseDriver):  # type: ignore[misc]
    """The driver behind ``transport_url = failover-inprocess://``. RPC only, no notifications."""

    def require_features(self, requeue: bool = False) -> None:
        """:raises NotImplementedError: when messages would have to be put back."""
        if requeue:
            raise NotImplementedError("failover-inprocess does not put messages back")

    def send(
        self,
        target: oslo_messaging.Target,
        ctxt: dict[str, Any],
        message: dict[str, Any],
        wait_for_reply: bool | None = None,
        timeout: float | None = None,
        call_monitor_timeout: float | None = None,
        retry: int | None = None,
        transport_options: Any = None,
    ) -> Any:
        """Send a call (``wait_for_reply``) or a cast; ``timeout`` in seconds.

        :raises oslo_messaging.MessagingTimeout: no answer in time.
        :raises Exception: whatever the endpoint raised, the very object.
        """
        exchange = target.exchange or self._default_exchange
        replies: queue.Queue[Any] | None = queue.Queue() if wait_for_reply else None
        if target.fanout:
            keys = HUB.servers(exchange, target.topic)
        else:
            keys = [(exchange, target.topic, target.server)]
        for key in keys:
            HUB.deliver(key, InProcessMessage(_copy(ctxt), _copy(message), replies))
        if replies is None:
            return None
        try:
            reply, failure = replies.get(timeout=timeout)
        except queue.Empty:
            raise oslo_messaging.MessagingTimeout(
                f"no answer on topic {target.topic} within {timeout} s"
            ) from None
        if failure is not None:
            raise failure
        return reply

    def send_notification(
        self,
        target: Any,
        ctxt: dict[str, Any],
        message: dict[str, Any],
        version: float,
        retry: int | None = None,
    ) -> None:
        """:raises NotImplementedError: always; Mistral's own notifier is run as ``local``."""
        raise NotImplementedError("failover-inprocess carries RPC only")

    def listen(
        self, target: oslo_messaging.Target, batch_size: int, batch_timeout: float | None
    ) -> InProcessListener:
        """A listener for the topic's common queue and for messages to this very server."""
        exchange = target.exchange or self._default_exchange
        return InProcessListener(
            HUB, ((exchange, target.topic, target.server), (exchange, target.topic, None))
        )

    def listen_for_notifications(
        self, targets_and_priorities: Any, pool: Any, batch_size: int, batch_timeout: float | None
    ) -> base.Listener:
        """:raises NotImplementedError: always; see :meth:`send_notification`."""
        raise NotImplementedError("failover-inprocess carries RPC only")

    def cleanup(self) -> None:
        """Nothing of this transport's own; the hub belongs to the process."""
