# SPDX-License-Identifier: Apache-2.0
"""Defects: errors that no code expects, of this package or of a plugin.

A handler of all exceptions keeps a thread alive, or lets the others of many continue. It must not
hide what it caught. So it does one of three things: it raises again, it hands the error to a thread
that raises it (``Future.set_exception``), or it calls :func:`defect`; above this layer
``runtime.errors.caught``, which tells defects from refusals and from services that are away.
``tests/test_broad_handlers.py`` forbids everything else.
"""

from __future__ import annotations

import logging
import re
import traceback
from contextlib import suppress
from pathlib import PurePath
from typing import NamedTuple, Protocol
from weakref import WeakSet

from mistral_failover.redaction import redact

LOG = logging.getLogger(__name__)
_PACKAGE = __name__.partition(".")[0]
_CODE = re.compile(r"[A-Z][A-Z0-9_]*")
_SEEN = "_failover_defect"


class Defect(NamedTuple):
    """A kind of defect. ``project_id``: whose work failed, "" if no single one's. ``doing``: during
    what. ``error``: the exception's class. ``place``: file and line. No text of the exception: it
    may quote what others wrote."""

    project_id: str
    doing: str
    error: str
    place: str


class Recorder(Protocol):
    """Keeps defects where people see them."""

    def record(self, found: Defect) -> None:
        """Keep a defect. Must neither wait nor raise."""


recorders: WeakSet[Recorder] = WeakSet()
"""Those of this process. Without one, as in an agent, defects are only logged."""


def defect(
    error: BaseException, doing: str, project_id: str = "", *, to_log_only: bool = False
) -> None:
    """Log an unexpected error with its traceback, without secrets, and have it counted.

    ``doing``: what failed, a constant text that completes "Defect while ...". An error that is
    raised again and caught once more is logged and counted once. ``to_log_only``: it is one of the
    recorder, which would record it without end.
    """
    if getattr(error, _SEEN, False):
        return  # raised again, and caught by the next one
    with suppress(AttributeError):
        setattr(error, _SEEN, True)
    described = traceback.TracebackException.from_exception(error)
    LOG.error("Defect while %s:\n%s", doing, redact("".join(described.format()).rstrip()))
    if to_log_only:
        return
    found = Defect(project_id, doing, type(error).__name__, _place(described))
    for each in list(recorders):
        each.record(found)


def code_of(error: BaseException) -> str | None:
    """Return the stable code of an error that its caller expects; None if it has none."""
    code = getattr(error, "code", None)  # others have codes as well: HTTP's 404
    return code if isinstance(code, str) and _CODE.fullmatch(code) else None


def _place(described: traceback.TracebackException) -> str:
    """Return the innermost file and line of this package; of any package if there is none."""
    frames = [(PurePath(each.filename), each.lineno) for each in described.stack]
    ours = [(path, line) for path, line in frames if _PACKAGE in path.parts]
    for path, line in reversed(ours or frames):
        parts = path.parts
        after = len(parts) - parts[::-1].index(_PACKAGE) if _PACKAGE in parts else -2
        return f"{'/'.join(parts[after:])}:{line}"
    return "?"
