# SPDX-License-Identifier: Apache-2.0
"""Transports of kombu that need no broker, for drills and tests on one machine.

They extend kombu's own ``memory`` and ``filesystem`` by what those lack: a queue exists or does
not, a deleted queue does not return while a consumer still polls it, a message appears completely
or not at all, and an unacknowledged message returns when its consumer closes. Neither implements
time limits, lengths, dead letters, confirmations or returned messages.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
import uuid
from collections import defaultdict, deque
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.transport import virtual

from mistral_failover.model.documents import load_json

Binding = tuple[str, None, str]
"""Routing key, pattern (never here), queue."""


class _Namespace:
    """The queues of one name, shared by all connections of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.queues: dict[str, deque[Any]] = {}
        self.bindings: dict[str, set[tuple[str, str]]] = defaultdict(set)


_NAMESPACES: dict[str, _Namespace] = defaultdict(_Namespace)


class _Channel(virtual.Channel):
    """Common parts: bindings are kept with the queues, not by each connection."""

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,  # noqa: ARG002 - as in AMQP
        **_: Any,
    ) -> None:
        self._bind(exchange or "amq.direct", routing_key, queue)

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,  # noqa: ARG002 - as in AMQP
        **_: Any,
    ) -> None:
        self._unbind(exchange or "amq.direct", routing_key, queue)

    def queue_delete(
        self,
        queue: str,
        if_unused: bool = False,  # noqa: ARG002 - as in AMQP
        if_empty: bool = False,
        **_: Any,
    ) -> None:
        if not (if_empty and self._size(queue)):  # type: ignore[no-untyped-call]
            self._delete(queue)  # type: ignore[no-untyped-call]

    def get_table(self, exchange: str) -> list[Binding]:
        return [(key, None, queue) for key, queue in self._bound(exchange)]

    def _bind(self, exchange: str, routing_key: str, queue: str) -> None:
        raise NotImplementedError

    def _unbind(self, exchange: str, routing_key: str, queue: str) -> None:
        raise NotImplementedError

    def _bound(self, exchange: str) -> list[tuple[str, str]]:
        raise NotImplementedError


class MemoryChannel(_Channel):
    """Queues in this process."""

    @property
    def _namespace(self) -> _Namespace:
        return _NAMESPACES[self.connection.client.hostname or ""]

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return queue in self._namespace.queues

    def _new_queue(self, queue: str, **_: Any) -> None:
        self._namespace.queues.setdefault(queue, deque())

    def _put(self, queue: str, message: Any, **_: Any) -> None:
        # An undeliverable message is lost, as with AMQP; each queue gets its own copy.
        with self._namespace.lock:
            if queue in self._namespace.queues:
                self._namespace.queues[queue].append(json.dumps(message))

    def _get(self, queue: str, timeout: float | None = None) -> Any:  # noqa: ARG002
        try:
            return load_json(self._namespace.queues[queue].popleft(), "message")
        except (KeyError, IndexError):
            raise Empty from None

    def _size(self, queue: str) -> int:
        return len(self._namespace.queues.get(queue, ()))

    def _purge(self, queue: str) -> int:
        with self._namespace.lock:
            waiting = self._namespace.queues.get(queue, deque())
            count = len(waiting)
            waiting.clear()
        return count

    def _delete(self, queue: str, *_: Any, **__: Any) -> None:
        with self._namespace.lock:
            self._namespace.queues.pop(queue, None)
            for bound in self._namespace.bindings.values():
                bound.difference_update([pair for pair in bound if pair[1] == queue])

    def _bind(self, exchange: str, routing_key: str, queue: str) -> None:
        with self._namespace.lock:
            self._namespace.bindings[exchange].add((routing_key, queue))

    def _unbind(self, exchange: str, routing_key: str, queue: str) -> None:
        with self._namespace.lock:
            self._namespace.bindings[exchange].discard((routing_key, queue))

    def _bound(self, exchange: str) -> list[tuple[str, str]]:
        with self._namespace.lock:
            return list(self._namespace.bindings.get(exchange, ()))


class FileChannel(_Channel):
    """A folder per queue, a file per message; what becomes visible is renamed into its place.

    ``folder/queues/QUEUE/MESSAGE``, ``folder/exchanges/EXCHANGE/BINDING``, ``folder/aside``.
    """

    @property
    def _folder(self) -> Path:
        return Path(self.connection.client.transport_options["folder"])

    def _queue(self, queue: str) -> Path:
        return self._folder / "queues" / queue

    def _aside(self) -> Path:
        """Return an unused name in the same file system."""
        place = self._folder / "aside"
        place.mkdir(parents=True, exist_ok=True)
        return place / uuid.uuid4().hex

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return self._queue(queue).is_dir()

    def _new_queue(self, queue: str, **_: Any) -> None:
        self._queue(queue).mkdir(parents=True, exist_ok=True)

    def _put(self, queue: str, message: Any, **_: Any) -> None:
        aside = self._aside()
        aside.write_text(json.dumps(message), encoding="utf-8")
        try:
            aside.rename(self._queue(queue) / f"{time.time_ns():020}-{aside.name}")
        except (FileNotFoundError, NotADirectoryError):  # no such queue: as with AMQP, it is lost
            aside.unlink(missing_ok=True)

    def _get(self, queue: str, timeout: float | None = None) -> Any:  # noqa: ARG002
        for message in self._waiting(queue):
            aside = self._aside()
            try:
                message.rename(aside)
            except FileNotFoundError:  # another consumer took it
                continue
            try:
                return load_json(aside.read_bytes(), "message")
            finally:
                aside.unlink()
        raise Empty

    def _waiting(self, queue: str) -> list[Path]:
        try:
            return sorted(self._queue(queue).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _size(self, queue: str) -> int:
        return len(self._waiting(queue))

    def _purge(self, queue: str) -> int:
        waiting = self._waiting(queue)
        for message in waiting:
            message.unlink(missing_ok=True)
        return len(waiting)

    def _delete(self, queue: str, *_: Any, **__: Any) -> None:
        for binding in (self._folder / "exchanges").glob("*/*"):
            if self._read(binding)[1:] == (queue,):
                binding.unlink(missing_ok=True)
        aside = self._aside()
        with suppress(FileNotFoundError):
            self._queue(queue).rename(aside)
            shutil.rmtree(aside, ignore_errors=True)

    def _binding(self, exchange: str, routing_key: str, queue: str) -> tuple[Path, str]:
        text = json.dumps([routing_key, queue])
        folder = self._folder / "exchanges" / exchange
        return folder / hashlib.sha256(text.encode()).hexdigest(), text

    def _bind(self, exchange: str, routing_key: str, queue: str) -> None:
        place, text = self._binding(exchange, routing_key, queue)
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = self._aside()
        aside.write_text(text, encoding="utf-8")
        aside.rename(place)

    def _unbind(self, exchange: str, routing_key: str, queue: str) -> None:
        self._binding(exchange, routing_key, queue)[0].unlink(missing_ok=True)

    def _bound(self, exchange: str) -> list[tuple[str, str]]:
        try:
            files = list((self._folder / "exchanges" / exchange).iterdir())
        except FileNotFoundError:
            return []
        return [(found[0], found[1]) for found in map(self._read, files) if found]

    @staticmethod
    def _read(binding: Path) -> tuple[str, ...]:
        try:
            return tuple(load_json(binding.read_bytes(), "binding"))
        except FileNotFoundError:  # its queue was deleted in the meantime
            return ()


class MemoryTransport(virtual.Transport):
    """``memory://NAME``: within one process; the same name, the same queues."""

    Channel = MemoryChannel
    driver_type = driver_name = "memory"


class FileTransport(virtual.Transport):
    """``filesystem:///FOLDER``: between processes of one machine."""

    Channel = FileChannel
    driver_type = driver_name = "filesystem"
