# SPDX-License-Identifier: Apache-2.0
"""How an action fails: with a stable code, a message and a remedy, never with a bare exception."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

from mistral_lib.actions import Result
from oslo_utils import strutils

from mistral_failover.cloud.errors import redact

LOG = logging.getLogger(__name__)
_CODE = re.compile(r"[A-Z][A-Z0-9_]*")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+(?=@)")
P = ParamSpec("P")


class ActionError(Exception):
    """What an action itself refuses. ``blocked``: only a person can help, and then it goes on."""

    def __init__(self, code: str, message: str, remedy: str, *, blocked: bool = False) -> None:
        super().__init__(f"{message.rstrip('.')}. {remedy}")
        self.code = code
        self.message = message
        self.remedy = remedy
        self.blocked = blocked


def masked(text: str) -> str:
    """A text from outside without what looks like a secret: it may quote a request or a URL."""
    return _CREDENTIALS.sub("***", redact(str(strutils.mask_password(text))))


def masked_body(value: Any) -> Any:
    """A JSON value from outside, each text in it masked, and whatever stands under a name such as
    ``password`` or ``auth_token``."""
    if isinstance(value, Mapping):
        found = {key: masked_body(item) for key, item in value.items()}
        return strutils.mask_dict_password(found)
    if isinstance(value, list | tuple):
        return [masked_body(item) for item in value]
    return masked(value) if isinstance(value, str) else value


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as ``{code, message, remedy}``, without secrets."""
    code = getattr(error, "code", None)
    # Others have codes as well: SQLAlchemy's e3q8, HTTP's 404.
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        return {
            "code": "UNEXPECTED",
            "message": masked(f"{type(error).__name__}: {error}"),
            "remedy": "Look at the executor's log, and mend the cause. Before anything is ordered "
            "again, see what was begun: failover status GROUP",
        }
    path = getattr(error, "path", "")
    message = masked(str(getattr(error, "message", error)))
    facts: dict[str, Any] = {
        "code": code,
        "message": f"{path}: {message}" if path else message,
        "remedy": getattr(error, "remedy", ""),
    }
    if getattr(error, "reasons", None):
        facts["reasons"] = dict(error.reasons)  # type: ignore[attr-defined]
    if getattr(error, "blocked", False):
        facts["blocked"] = True
    if getattr(error, "about", None):
        facts["about"] = dict(error.about)  # type: ignore[attr-defined]
    return facts


def answered(run: Callable[P, Any]) -> Callable[P, Any]:
    """Make an action's ``run`` return ``Result(error=...)`` instead of raising, since Mistral
    passes an exception on as one opaque string."""

    @functools.wraps(run)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return run(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the boundary: nothing may pass
            facts = describe(error)
            if facts["code"] == "UNEXPECTED":
                LOG.exception("An action failed unexpectedly")
            return Result(error=facts)

    return wrapper
