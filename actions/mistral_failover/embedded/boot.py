# SPDX-License-Identifier: Apache-2.0
"""Preparations before the first import of Mistral in a process."""

import inspect
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from mistral_failover.errors import CodedError
from mistral_failover.mistral import releases

_lock = threading.Lock()
_done = False


def init() -> None:
    """Choose native threads for oslo.service; any number of calls, from any thread.

    Since 21 Mistral runs on threads only, while oslo.service picks eventlet unless the backend is
    set before the first component is used (``mistral/cmd/__init__.py`` does the same).

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
        if _backends():
            _choose_threads()
        _done = True


def check_mistral() -> None:
    """Check that the Mistral in this environment, if there is one, can run within this package's
    processes.

    :raises CodedError: ``MISTRAL_NOT_TESTED``.
    """
    try:
        found = releases.installed()
    except PackageNotFoundError:
        return  # the first import says so
    release = releases.release_of(found)
    if release is None or not release.embedded:
        raise CodedError(
            "MISTRAL_NOT_TESTED",
            f"Mistral {found} is installed here, and failover server and failover drill run only "
            f"{releases.embeddable()}",
            "Install them into an environment of their own: pip install "
            "'mistral-failover[embedded]'.",
        )


def _backends() -> bool:
    """Return whether oslo.service has a choice: before 4.2 (OpenStack 2025.1) it has only eventlet,
    which changes nothing in a process that does not ask for it."""
    major, minor, *_ = version("oslo.service").split(".")
    return (int(major), int(minor)) >= (4, 2)


def _choose_threads() -> None:
    from oslo_service import backend

    try:
        backend.init_backend(backend.BackendType.THREADING)
    except backend.exceptions.BackendAlreadySelected as e:
        raise CodedError(
            "WRONG_SERVICE_BACKEND",
            "this process already runs oslo.service on eventlet",
            "call mistral_failover.embedded.boot.init() before other OpenStack imports",
        ) from e


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import Mistral within this: it saves a second of each process. Nothing of Mistral changes.

    eventlet is hidden, unless the process has imported it already: futurist, oslo.service and
    oslo.utils import it if it is installed, and work without it. Mistral 23 never uses it.

    The types of the API say themselves in which order their attributes are declared. wsme would
    read that from the source, and parse the whole file again for each class and base of it.
    """
    from wsme import types

    hidden = "eventlet" not in sys.modules
    if hidden:
        sys.modules["eventlet"] = None  # type: ignore[assignment]
    types.Base._wsme_attr_order = _Declared()
    try:
        yield
    finally:
        del types.Base._wsme_attr_order
        if hidden:
            del sys.modules["eventlet"]


class _Declared:
    """The names of a type's attributes for wsme, in the order in which it declares them; those of
    its bases follow."""

    def __get__(self, _: object, owner: type) -> list[str]:
        names = dict.fromkeys(name for base in owner.__mro__ for name in vars(base))
        return [name for name in names if not name.startswith("_") and _is_attribute(owner, name)]


def _is_attribute(owner: type, name: str) -> bool:
    from wsme.types import iswsattr

    value = getattr(owner, name)
    return bool(iswsattr(value)) and not inspect.isroutine(value)
