# SPDX-License-Identifier: Apache-2.0
"""Ask Mistral for the pages: with the caller's rights, over one connection for all of them."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from mistral_failover.cli import connection
from mistral_failover.cli.base import given
from mistral_failover.model.text import clean, clean_value

if TYPE_CHECKING:
    from mistral_failover.mistral.client import MistralClient

_REMEMBERED = 256
_FRESH = 1.0  # seconds for which an answer counts as the present one
"""Maximum answers that are remembered."""


class ActionFailed(Exception):
    """A question without an answer: ``message`` says what is wrong, ``remedy`` what helps; ``code``
    is for programs."""

    def __init__(self, message: str, remedy: str = "", code: str = "FAILED") -> None:
        super().__init__(message)
        self.message = clean(message)
        self.remedy = clean(remedy)
        self.code = code


class ActionClient(Protocol):
    """What the pages need of Mistral. Both methods raise ActionFailed, and may be called from
    several threads at once."""

    def run_action(self, action: str, **inputs: Any) -> Any:
        """Run an action with the inputs that are not None; return its answer with clean texts."""

    def start(self, workflow: str, **inputs: Any) -> str:
        """Start a workflow with the inputs that are not None; return the execution's id."""


class MistralActionClient:
    """Asks the Mistral that the options of ``app`` name (see ``cli.connection``); makes a new
    connection after a failure."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._made: MistralClient | None = None

    def run_action(self, action: str, **inputs: Any) -> Any:
        """See `ActionClient`."""
        with self._client() as client:
            # By an executor: without a record the engine itself would run it, and block.
            return clean_value(client.run_action(action, given(inputs), forget=True))

    def start(self, workflow: str, **inputs: Any) -> str:
        """See `ActionClient`. The id is known even if the answer is lost."""
        identity = str(uuid.uuid4())
        with self._client() as client:
            client.start(
                workflow,
                given(inputs),
                id=identity,
                description="by the web page",
                namespace=connection.namespace(self._app),
            )
        return identity

    @contextlib.contextmanager
    def _client(self) -> Iterator[MistralClient]:
        from keystoneauth1.exceptions import ClientException
        from openstack.exceptions import SDKException

        from mistral_failover.mistral.client import MistralError

        try:
            with self._lock:
                if self._made is None:
                    with connection.mistral(self._app) as made:
                        self._made = made
                client = self._made
            yield client
        except MistralError as error:
            if error.code in connection.AWAY or error.code == "UNAUTHORISED":
                self._made = None
            raise ActionFailed(error.message, error.remedy, error.code) from None
        except connection.CommandFailed as error:
            raise ActionFailed(error.wrong, error.remedy) from None
        except (ClientException, SDKException) as error:
            self._made = None
            raise ActionFailed(
                str(error), "Check the options that name Mistral.", "NO_CLOUD"
            ) from None


@dataclass
class _Answer:
    lock: threading.Lock = field(default_factory=threading.Lock)
    at: float = float("-inf")
    value: Any = None
    trouble: ActionFailed | None = None


class CachingActionClient:
    """Asks another `ActionClient`, and gives the same answer to the same question for a second,
    also a failure: many open pages cost Mistral no more than one, and do not wait for one timeout
    each."""

    def __init__(self, client: ActionClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, _Answer] = OrderedDict()

    def run_action(self, action: str, **inputs: Any) -> Any:
        """See `ActionClient`. Only one thread asks the same question; the others wait for its
        answer."""
        key = json.dumps([action, inputs], sort_keys=True)
        with self._lock:
            answer = self._answers.setdefault(key, _Answer())
            self._answers.move_to_end(key)
            while len(self._answers) > _REMEMBERED:
                self._answers.popitem(last=False)
        with answer.lock:
            if time.monotonic() - answer.at > _FRESH:
                try:
                    answer.value, answer.trouble = self._client.run_action(action, **inputs), None
                except ActionFailed as error:
                    answer.trouble = error
                answer.at = time.monotonic()
            if answer.trouble is not None:
                raise answer.trouble.with_traceback(None)
            return answer.value

    def order(self, action: str, **inputs: Any) -> Any:
        """Run an action that changes something; later questions are asked again."""
        try:
            return self._client.run_action(action, **inputs)
        finally:
            self.forget()

    def start(self, workflow: str, **inputs: Any) -> str:
        """See `ActionClient`; later questions are asked again."""
        try:
            return self._client.start(workflow, **inputs)
        finally:
            self.forget()

    def forget(self) -> None:
        """Ask every later question anew."""
        with self._lock:
            self._answers.clear()
