# SPDX-License-Identifier: Apache-2.0
"""Preparations before the first import of Mistral in a process."""

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from mistral_failover.errors import CodedError

_lock = threading.Lock()
_done = False


def init() -> None:
    """Choose native threads for oslo.service; any number of calls, from any thread.

    Mistral 23 runs on threads only, while oslo.service picks eventlet unless the backend is set
    before the first component is used (``mistral/cmd/__init__.py`` does the same).

    :raises CodedError: ``WRONG_SERVICE_BACKEND`` when the process already runs on eventlet.
    """
    global _done
    with _lock:
        if _done:
            return
        # oslo.service imports eventlet for its version check even on the threading backend.
        warnings.filterwarnings("ignore", message=r"\s*.*[Ee]ventlet")
        # Of Mistral's JSON columns, which do not say that statements with them may be cached.
        warnings.filterwarnings("ignore", message="TypeDecorator JsonEncoded")
        from oslo_service import backend

        try:
            backend.init_backend(backend.BackendType.THREADING)
        except backend.exceptions.BackendAlreadySelected as e:
            raise CodedError(
                "WRONG_SERVICE_BACKEND",
                "this process already runs oslo.service on eventlet",
                "call mistral_failover.embedded.boot.init() before other OpenStack imports",
            ) from e
        _done = True


@contextmanager
def without_eventlet() -> Iterator[None]:
    """Hide eventlet while Mistral is imported, unless the process has imported it already.

    futurist, oslo.service and oslo.utils import it if it is installed, and work without it. Mistral
    23 never uses it, and the import takes 0.4 s.
    """
    hidden = "eventlet" not in sys.modules
    if hidden:
        sys.modules["eventlet"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["eventlet"]
