# SPDX-License-Identifier: Apache-2.0
"""The engine behind the fixtures: an embedded Mistral without cron triggers and waits."""

import functools
import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from mistral_failover.embedded import boot
from mistral_failover.embedded.server import EmbeddedMistral
from mistral_failover.embedded.settings import LOCAL_HTTP
from mistral_failover.lab.testing.replacements import Replacements
from mistral_failover.model.documents import load_json

# Policies that only wait; a task timeout is not among them, because without its delay it would
# fail every task.
_WAITS = frozenset(
    {"mistral.engine.policies._continue_task", "mistral.engine.policies._complete_task"}
)
_SPECIFICATIONS = 256  # parsed workflows that are remembered


def _parsed_once(parse: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    @functools.lru_cache(_SPECIFICATIONS)
    def of_text(text: str) -> Any:
        return parse(load_json(text, "workflow"))

    return lambda document: of_text(json.dumps(document))


class TestEngine:
    """One real engine for many tests; a context manager.

    :ivar replacements: the actions replaced at the moment, and the calls they received.
    """

    __test__ = False  # not a test class, despite its name

    def __init__(self, state_dir: Path) -> None:
        self._mistral = EmbeddedMistral(
            state_dir,
            database="sqlite://",
            overrides={**LOCAL_HTTP, "engine.execution_integrity_check_delay": -1},
            threads=32,
            cron=False,
        )
        self._ended: set[str] = set()
        self._changed = threading.Condition()
        self._parser: tuple[Any, Any] | None = None
        self._kept: dict[str, tuple[str, str]] = {}
        self.replacements = Replacements()

    def __enter__(self) -> Self:
        boot.init()
        from mistral.scheduler import base as scheduler
        from mistral.services import actions, triggers

        self._mistral.start()
        scheduler.get_system_scheduler().hastened = _WAITS
        self.replacements.install(actions.get_system_action_provider())
        self._remember_specifications()
        # The engine's one call for every execution that ends; it saves polling.
        self._original = triggers.on_workflow_complete
        triggers.on_workflow_complete = self._on_workflow_complete
        return self

    def __exit__(self, *_exc: object) -> None:
        from mistral.services import triggers

        triggers.on_workflow_complete = self._original
        self._forget_specifications()
        self.replacements.uninstall()
        self._mistral.stop()

    @property
    def url(self) -> str:
        """Where its API is, ``http://127.0.0.1:PORT/v2``: operations that are workflows need it."""
        return self._mistral.url

    @property
    def token_file(self) -> Path:
        """The file with the token that every request to the API needs."""
        return self._mistral.token_file

    def context(self) -> Any:
        """A ``with`` block in which Mistral's Python interfaces may be called."""
        return self._mistral.context()

    def load(self, text: str, origin: str) -> list[str]:
        """Register the workflows of a text; returns those that were new or changed."""
        from mistral_failover.embedded import definitions

        with self.context():
            return definitions.install(text, origin)

    def start(self, name: str, inputs: dict[str, Any], params: dict[str, Any]) -> str:
        """Start a workflow; return the id of its execution.

        :raises mistral.exceptions.MistralException: as the API would refuse it.
        """
        from mistral.rpc import clients

        with self.context():
            started = clients.get_engine_client().start_workflow(name, wf_input=inputs, **params)
        return str(started["id"] if isinstance(started, dict) else started.id)

    def wait(self, execution_id: str, timeout: float) -> bool:
        """Wait until the execution has ended and is stored so; return False when the time is
        over."""
        with self._changed:
            return self._changed.wait_for(lambda: execution_id in self._ended, timeout)

    def keep(self, paths: Iterable[str]) -> None:
        """Register files of one workflow each, named after it, which stay after the test; what the
        test makes of them does not. Costs one query if they are still there."""
        there = self._registered()
        for path in paths:
            if self._kept.get(path) not in there:
                self.load(Path(path).read_text("utf-8"), path)
                (self._kept[path],) = self._registered() - there
                there.add(self._kept[path])

    def _registered(self) -> set[tuple[str, str]]:
        with self.context():
            return {(row.name, row.checksum) for row in self._definitions()}

    def _definitions(self) -> list[Any]:
        """Rows of id, name and checksum, inside Mistral's security context."""
        from mistral.db.v2 import api as db_api

        rows: list[Any] = db_api.get_workflow_definitions(fields=("id", "name", "checksum"))
        return rows

    def clean(self) -> None:
        """Delete definitions, executions, jobs and replacements."""
        from mistral.db.sqlalchemy import sqlite_lock
        from mistral.db.v2 import api as db_api
        from mistral.lang import parser

        self.replacements.clear()
        with self.context(), db_api.transaction():
            db_api.delete_workflow_executions()
            db_api.delete_task_executions()
            db_api.delete_action_executions()
            kept = set(self._kept.values())
            gone = [row.id for row in self._definitions() if (row.name, row.checksum) not in kept]
            db_api.delete_workflow_definitions(id={"in": gone})
            db_api.delete_scheduled_jobs()
        sqlite_lock.cleanup()
        parser.clear_caches()
        with self._changed:
            self._ended.clear()

    def _remember_specifications(self) -> None:
        """Parse each text once: most tests load the same workflows. Mistral shares what it parsed
        among executions itself, so nothing changes it."""
        from mistral.lang import parser

        self._parser = (parser.get_workflow_list_spec_from_yaml, parser.get_workflow_spec)
        of_text, of_document = self._parser
        parser.get_workflow_list_spec_from_yaml = functools.lru_cache(_SPECIFICATIONS)(of_text)
        parser.get_workflow_spec = _parsed_once(of_document)

    def _forget_specifications(self) -> None:
        from mistral.lang import parser

        if self._parser is not None:
            parser.get_workflow_list_spec_from_yaml, parser.get_workflow_spec = self._parser

    def _on_workflow_complete(self, execution: Any) -> None:
        self._original(execution)
        # Still inside the engine's transaction; readers wait for its lock, and so for the commit.
        with self._changed:
            self._ended.add(execution.id)
            self._changed.notify_all()
