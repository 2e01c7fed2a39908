# SPDX-License-Identifier: Apache-2.0
"""Mistral's engine, executor, scheduler, cron triggers and API in this process.

with EmbeddedMistral("state") as mistral:
    mistral.install_workflows(["workflows/on_alarm.yaml"])
    print(mistral.client.run("failover.on_alarm", {...})["output"])
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Self

from oslo_config import cfg

from mistral_failover import private_files
from mistral_failover import settings as configuration
from mistral_failover.embedded import access, boot, settings, unix_socket
from mistral_failover.embedded.garbage import rare_collections
from mistral_failover.embedded.wsgi import WsgiFace
from mistral_failover.errors import CodedError
from mistral_failover.http_server import BACKLOG, HttpServer
from mistral_failover.mistral import in_process
from mistral_failover.mistral.client import MistralClient
from mistral_failover.mistral.unix_transport import SCHEME

PROJECT = "<default-project>"  # the project of everything while Mistral's authentication is off
_ACTIVE = threading.Lock()  # Mistral's configuration, scheduler and database are process-wide
_LOGGERS = ("mistral", "mistral_failover", "workflow_trace", "oslo_messaging", "oslo_service")
_ANSWERS = "mistral.utils.rest_utils"
"""The logger of what Mistral's API refuses."""
_UNFINISHED = ("IDLE", "RUNNING", "RUNNING_DELAYED", "WAITING")
_REASON = "The process that ran this has ended."


class EmbeddedMistral:
    """One Mistral, on loopback, with its state in a directory; a context manager.

    Starting again on the same directory continues with its workflows, executions and cron
    triggers. Executions that a killed process left RUNNING are not continued by Mistral: see
    :meth:`stale_executions` and :meth:`cancel_stale`.

    :param state_dir: holds ``mistral.sqlite``, ``mistral.conf``, the API's token and the lock; made
        if missing. No other user may enter it.
    :param port: of the API; 0 takes a free one (see :attr:`url`).
    :param host: an IPv4 loopback address.
    :param names: further names by which clients may call the API, besides ``host`` and
        ``localhost``.
    :param socket: a unix socket for the API, in place of the port.
    :param database: an SQLAlchemy URL; default is SQLite in ``state_dir``, ``sqlite://`` is
        memory. Another database must carry Mistral's schema (``mistral-db-manage upgrade head``).
    :param log_file: Mistral's log (INFO and above); default none, warnings go to the root logger.
    :param auth_url: Keystone's URL, which actions find as ``context.security.auth_uri``.
    :param overrides: ``{"group.option": value}`` for Mistral's configuration and for any other
        option group that is read from it, e.g. ``mistral_failover.<option>``.
    :param threads: upper bound of the threads that carry actions out, and of the engine's.
    :param api: False runs without the REST API (then there is no :attr:`url` or :attr:`client`).
    :param cron: False runs without cron triggers.
    """

    def __init__(
        self,
        state_dir: str | Path,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        names: Collection[str] = (),
        socket: Path | None = None,
        database: str | None = None,
        log_file: str | Path | None = None,
        auth_url: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        threads: int = 128,
        api: bool = True,
        cron: bool = True,
    ) -> None:
        self._dir = Path(state_dir).absolute()
        self._settings = settings.build(
            state_dir=self._dir,
            database=database or f"sqlite:///{self._dir / 'mistral.sqlite'}",
            host=host,
            port=port,
            threads=threads,
            auth_url=auth_url,
            overrides=overrides,
        )
        self._log_file = Path(log_file) if log_file else None
        self._names = {host, "localhost", *names}
        self._api, self._cron = api, cron
        self._cleanup: contextlib.ExitStack | None = None
        self._socket = socket
        self._url: str | None = None
        self._client: MistralClient | None = None
        self._inherited: list[str] = []
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The API's base, ``http://127.0.0.1:PORT/v2``, or ``unix:PATH``.

        :raises CodedError: ``NOT_RUNNING`` before the start, after the stop, without API.
        """
        if self._url is None:
            raise CodedError(
                "NOT_RUNNING", ("the embedded Mistral has no running API"), "call start() first"
            )
        return self._url

    @property
    def token_file(self) -> Path:
        """The file with the token that every request to the API needs; there once it runs."""
        return self._dir / access.TOKEN_FILE

    @property
    def client(self) -> MistralClient:
        """A client of the API, which passes by :attr:`url`: what others send there does not delay
        its requests. Thread-safe. Raises as :attr:`url`."""
        if self._client is None:
            self._client = self.connect()
        return self._client

    def connect(self, timeout: float = 60) -> MistralClient:
        """Return a further such client, whose requests may take ``timeout`` seconds. Raises as
        :attr:`url`."""
        _ = self.url
        return MistralClient(in_process.URL, timeout=timeout)

    def start(self) -> Self:
        """Start everything; returns when the API answers.

        :raises CodedError: ``STATE_DIR_IN_USE`` (another process works on the directory),
            ``STATE_DIR_OPEN`` (another user may enter it), ``TOKEN_NOT_PRIVATE``,
            ``TOKEN_UNREADABLE``, ``ALREADY_RUNNING`` (one Mistral a process),
            ``WRONG_SERVICE_BACKEND``, ``MISTRAL_NOT_TESTED``; of a unix socket as
            ``unix_socket.bound``.
        """
        boot.check_mistral()
        with boot.quick_imports(), contextlib.ExitStack() as stack:
            boot.init()
            self._claim_process(stack)
            access.make_private(self._dir)
            self._claim_directory(stack)
            self._configure(stack)
            self._open_database(stack)
            self._start_services(stack)
            stack.enter_context(rare_collections())
            self._stopped = threading.Event()
            stack.callback(self._stopped.set)
            self._cleanup = stack.pop_all()
        threading.Thread(target=self._stop_with_main_thread, name="embedded-mistral-end").start()
        return self

    def stop(self) -> None:
        """Stop everything and give up the state directory; no error when not running.

        Running actions are not interrupted (Python cannot): their results are lost to Mistral, and
        the process ends when they do. Bound their time, as every action here does.
        """
        self._url = self._client = None
        if self._cleanup is not None:
            stack, self._cleanup = self._cleanup, None
            stack.close()

    def install_workflows(self, paths: Iterable[str | Path]) -> list[str]:
        """Register the workflows of the files, or update those whose text has changed.

        :returns: the names that were new or changed, in the files' order.
        :raises CodedError: ``WORKFLOW_INVALID``, naming the file.
        """
        from mistral_failover.embedded import definitions

        names: list[str] = []
        with self.context():
            for path in paths:
                names += definitions.install(Path(path).read_text("utf-8"), str(path))
        return names

    def stale_executions(self) -> list[dict[str, Any]]:
        """Executions that a former process left unfinished and that no process continues.

        :returns: for each ``id``, ``workflow_name``, ``state``, ``root_execution_id`` (None for a
        root), ``created_at`` (ISO 8601, UTC), oldest first.
        """
        with self.context():
            return _unfinished(self._inherited)

    def cancel_stale(self, state: str = "CANCELLED") -> list[str]:
        """End the trees of :meth:`stale_executions`, with their tasks and actions.

        Nothing is undone or repeated: the failover's own state records the work, and its sweep
        triggers it again.

        :param state: ``CANCELLED`` or ``ERROR``. :returns: the ids of the executions that were
        ended. :raises CodedError: ``BAD_STATE`` for another state.
        """
        with self.context():
            return _end_unfinished(self._inherited, state)

    @contextlib.contextmanager
    def context(self) -> Any:
        """Mistral's security context for this thread, needed by its Python interfaces."""
        from mistral import context

        old = context.ctx() if context.has_ctx() else None
        context.set_ctx(
            context.MistralContext(
                user_id="embedded", project_id=PROJECT, auth_token=None, is_admin=True
            )
        )
        try:
            yield
        finally:
            context.set_ctx(old)

    def _stop_with_main_thread(self) -> None:
        # The API's threads are no daemons, and atexit functions run only after those have ended:
        # without this, a program that dies of an exception would hang instead.
        main = threading.main_thread()
        while main.is_alive():
            if self._stopped.wait(0.5):
                return
        self.stop()

    # --- starting, in order; what each step registers with the stack is undone in reverse -----

    def _claim_process(self, stack: contextlib.ExitStack) -> None:
        if not _ACTIVE.acquire(blocking=False):
            raise CodedError(
                "ALREADY_RUNNING",
                "a Mistral is already running in this process",
                "stop it first, or start the second one in another process",
            )
        stack.callback(_ACTIVE.release)

    def _claim_directory(self, stack: contextlib.ExitStack) -> None:
        # flock, not a pid file: the kernel releases it with a killed process.
        lock: IO[str] = stack.enter_context(
            os.fdopen(
                private_files.open_in_place(self._dir / "lock", os.O_WRONLY | os.O_CREAT), "w"
            )
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise CodedError(
                "STATE_DIR_IN_USE",
                f"another process runs Mistral on {self._dir}",
                "stop that process, or choose another directory",
            ) from e

    def _configure(self, stack: contextlib.ExitStack) -> None:
        from mistral import config

        file = settings.write(self._settings, self._dir)
        config.parse_args(["--config-file", str(file)])
        stack.callback(config.CONF.reset)
        pinned = dict(settings.PINNED)
        pinned["api", "host"] = self._settings["api"]["host"]
        for (group, option), value in pinned.items():
            config.CONF.set_override(option, value, group)
            stack.callback(config.CONF.clear_override, option, group)
        self._configure_logging(stack)

    def _configure_logging(self, stack: contextlib.ExitStack) -> None:
        # oslo.log would take over the root logger, which belongs to the program around us.
        level = logging.INFO if self._log_file else logging.WARNING
        handler: logging.Handler | None = None
        if self._log_file:
            self._log_file.parent.mkdir(parents=True, exist_ok=True)
            handler = logging.FileHandler(self._log_file, encoding="utf-8")
            handler.setFormatter(
                logging.Formatter("%(asctime)s %(levelname)s %(threadName)s %(name)s %(message)s")
            )
            stack.callback(handler.close)
        answers = logging.getLogger(_ANSWERS)
        answers.addFilter(_is_told)
        stack.callback(answers.removeFilter, _is_told)
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(level)
            if handler is not None:
                stack.callback(logger.removeHandler, handler)
                logger.addHandler(handler)
                # The terminal belongs to the program around us, so nothing is printed there either.
                stack.callback(setattr, logger, "propagate", logger.propagate)
                logger.propagate = False

    def _open_database(self, stack: contextlib.ExitStack) -> None:
        from mistral.db.v2 import api as db_api

        from mistral_failover.embedded.services import database_engine, forget_database

        stack.callback(forget_database)
        if database_engine().url.get_backend_name() == "sqlite":
            db_api.setup_db()
        with self.context():
            self._inherited = [row["id"] for row in _unfinished(None)]

    def _start_services(self, stack: contextlib.ExitStack) -> None:
        from mistral.engine import engine_server
        from mistral.executors import executor_server
        from mistral.services import periodic_server

        from mistral_failover.embedded import egress
        from mistral_failover.embedded.services import (
            forget_services,
            install_scheduler,
            make_shared_objects,
            stop_service,
        )

        egress.install()
        install_scheduler()
        stack.callback(forget_services)
        with self.context():
            make_shared_objects()
        # Stopped in the reverse order: what the executor gives back needs a running engine.
        services = [
            engine_server.get_oslo_service(setup_profiler=False),
            executor_server.get_oslo_service(setup_profiler=False),
        ]
        if self._cron:
            services.append(periodic_server.get_oslo_service())
        for service in services:
            service.start()
            stack.callback(stop_service, service)
            service.wait_started()
        if self._api:
            from mistral.api import app

            api = app.setup_app()
            stack.enter_context(in_process.served(WsgiFace(api, access.LARGEST)))
            # Not by Mistral's own server, which a few slow clients keep from answering.
            gate = access.AccessControl(api, access.token(self._dir), self.token_file, self._names)
            listening = self._listening()
            stack.enter_context(HttpServer(listening, WsgiFace(gate, access.LARGEST)))
            if self._socket is not None:
                # While it still listens: afterwards it may be another process's.
                stack.callback(unix_socket.removed, self._socket, self._socket.stat())
                self._url = f"{SCHEME}{self._socket}"
            else:
                host, port = listening.getsockname()
                self._url = f"http://{host}:{port}/v2"

    def _listening(self) -> socket.socket:
        if self._socket is not None:
            return unix_socket.bound(self._socket)
        api = self._settings["api"]
        return socket.create_server((api["host"], int(api["port"])), backlog=BACKLOG)


def _is_told(record: logging.LogRecord) -> bool:
    """Whether what Mistral logs is told to the operator: not what its policy refuses to this
    process itself. The doctor asks whether it is refused, and says what is wrong if it is not."""
    own = record.threadName == in_process.THREAD
    return not (own and "Operation forbidden" in record.getMessage())


def _unfinished(ids: Collection[str] | None) -> list[dict[str, Any]]:
    """The unfinished executions among ``ids`` (None: among all), oldest first.

    PAUSED ones are left out: a user paused them, and they can be resumed.
    """
    from mistral.db.v2 import api as db_api

    if ids is not None and not ids:
        return []
    with db_api.transaction(read_only=True):
        rows = db_api.get_workflow_executions(
            insecure=True, sort_keys=["created_at", "id"], state={"in": list(_UNFINISHED)}
        )
        return [
            {
                "id": row.id,
                "workflow_name": row.workflow_name,
                "state": row.state,
                "root_execution_id": row.root_execution_id,
                "created_at": row.created_at.isoformat(),
            }
            for row in rows
            if ids is None or row.id in ids
        ]


def _end_unfinished(ids: Collection[str], state: str) -> list[str]:
    """Set the unfinished executions among ``ids``, their tasks and actions to ``state``.

    Mistral keeps the next steps in threads, so a killed process leaves executions RUNNING forever.
    Clients that wait for them must see an end. Rows are written directly, in one transaction:
    Mistral's own stop would run the on-error tasks of parents, which is unwanted work.

    :raises CodedError: ``BAD_STATE``.
    """
    from mistral.db.v2 import api as db_api

    if state not in ("CANCELLED", "ERROR"):
        raise CodedError(
            "BAD_STATE",
            (f"{state} is not a final state for a stale execution"),
            "use CANCELLED or ERROR",
        )
    ended = [row["id"] for row in _unfinished(ids)]
    values = {"state": state, "state_info": _REASON}
    open_states = {"in": [*_UNFINISHED, "PAUSED"]}
    with db_api.transaction():
        for wf_id in ended:
            tasks = db_api.get_task_executions(
                insecure=True, workflow_execution_id=wf_id, state=open_states
            )
            for task in tasks:
                actions = db_api.get_action_executions(
                    insecure=True, task_execution_id=task.id, state=open_states
                )
                for action in actions:
                    action.update({"state": state, "accepted": True})
                task.update({**values, "processed": True})
            db_api.get_workflow_execution(wf_id).update(values)
    return ended


@contextlib.contextmanager
def known_to_actions(mistral: EmbeddedMistral) -> Iterator[None]:
    """Set ``[failover] mistral_url`` of this process to its own Mistral, which runs, unless another
    one is set: without a token of the cloud there is no catalog in which an action could find it.

    The Mistral is stopped at the end. Only then is the setting undone: the last actions of its
    executor would otherwise find other settings, and with them a pool of workers that nothing has
    told to stop.
    """
    known = configuration.load()
    if known.mistral_token_file or known.mistral_url not in (None, mistral.url):
        yield
        return
    cfg.CONF.set_override("mistral_url", in_process.URL, group=configuration.GROUP)
    try:
        yield
    finally:
        mistral.stop()
        cfg.CONF.clear_override("mistral_url", group=configuration.GROUP)
