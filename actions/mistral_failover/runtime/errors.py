# SPDX-License-Identifier: Apache-2.0
"""How an action fails: with a stable code, a message and a remedy, never with a bare exception.

Remedies name the command by which an operator continues with a group, never the workflow
``failover.failover`` without ``lost``: if the goal was reached, that one declares its role holders
lost, and a planned move that returned has reached a goal. ``failover start GROUP`` declares no
member lost, and is refused if the goal was reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import Any, NotRequired, TypedDict

from oslo_utils import strutils
from sqlalchemy import exc as sql

from mistral_failover.cloud.errors import NO_CAUSE, NO_RIGHTS, CloudError, cause
from mistral_failover.cloud.transport import LeaseLost
from mistral_failover.defects import code_of, defect
from mistral_failover.errors import CodedError
from mistral_failover.model.errors import DocumentProblem, RefusedDocument, with_reasons
from mistral_failover.model.remedies import Need, NeedDocument, command
from mistral_failover.model.text import clean
from mistral_failover.redaction import redact
from mistral_failover.store.database import READ_ONLY, is_away
from mistral_failover.store.database import number as number_of

STORE = "the state store"
"""The name of the database in messages."""
_LOST = {2006, 2013, 2055, 1927}


class Tried(TypedDict):
    """Something that was tried in vain: ``what``, in a word, ``found``, in words, and when."""

    what: str
    found: str
    at: float


class ProblemFacts(TypedDict):
    """A problem of a group file. ``field``: its path, as in ``resources.data.properties.volume``,
    empty for the whole file."""

    field: str
    code: str
    message: str
    remedy: str


class ErrorFacts(TypedDict):
    """An error as an action answers it: a stable code, what happened and why, and what helps."""

    code: str
    message: str
    remedy: str
    blocked: NotRequired[bool]
    """An operator must help."""
    unknown: NotRequired[bool]
    """The operation may still take effect."""
    reasons: NotRequired[dict[str, str]]
    """By member."""
    problems: NotRequired[list[ProblemFacts]]
    """All problems of a group file."""
    about: NotRequired[dict[str, Any]]
    target: NotRequired[dict[str, Any]]
    transient: NotRequired[bool]
    """A service was unreachable or did not answer properly."""
    service: NotRequired[str]
    """Its name for people."""
    detail: NotRequired[str]
    """A few words: connection refused, HTTP 503."""
    patience: NotRequired[float]
    """The seconds for which it is waited out. Without it: as long as the group allows."""
    needs: NotRequired[list[NeedDocument]]
    """What a person does about it, in order, as far as it is a known remedy."""
    tried: NotRequired[list[Tried]]
    """What was tried before it failed, in order."""


class ActionError(CodedError):
    """A refusal or failure of an action itself. ``blocked``: it can continue only after an operator
    has helped.

    ``transient``, ``service``, ``detail``, ``about``, ``needs``: as of a `CloudError`. An error
    that is both transient and blocked first waits for the service; an operator is needed only if
    that fails.
    ``tried``: what was tried before, in order.
    """

    def __init__(
        self,
        code: str,
        message: str,
        remedy: str,
        *,
        blocked: bool = False,
        transient: bool = False,
        service: str = "",
        detail: str = "",
        about: Mapping[str, Any] | None = None,
        tried: Sequence[Tried] = (),
        needs: tuple[Need, ...] = (),
    ) -> None:
        super().__init__(code, message, remedy)
        self.about = about
        self.blocked = blocked
        self.transient = transient
        self.service = service
        self.detail = detail
        self.tried = tuple(tried)
        self.needs = needs


def own_stack(stack: str | None, group: str) -> str:
    """Return the stack of a group, for what only Heat does. Raises ActionError NO_STACK if it has
    none."""
    if stack is None:
        raise ActionError(
            "NO_STACK",
            f"{group} has no stack, so Heat can change nothing for it",
            "Change servers and volumes with the tool that made them, then: "
            f"failover group update FILE --name {quote(group)}",
        )
    return stack


def in_words(tried: Tried) -> str:
    """Return what was tried as a clause."""
    return f"{tried['what']}: {tried['found']}"


def masked(text: str) -> str:
    """Return a text from outside without anything that looks like a secret (it may quote a request
    or a URL) and without anything that would act on a terminal."""
    return redact(str(strutils.mask_password(clean(text))))


def masked_body(value: Any) -> Any:
    """Return a JSON value from outside with each text in it masked, and every value whose name is
    like ``password`` or ``auth_token``."""
    if isinstance(value, Mapping):
        found = {clean(str(key)): masked_body(item) for key, item in value.items()}
        return strutils.mask_dict_password(found)
    if isinstance(value, list | tuple):
        return [masked_body(item) for item in value]
    return masked(value) if isinstance(value, str) else value


def explained(error: BaseException) -> str:
    """Return the message of an exception with the reason for each member, without secrets."""
    facts = describe(error)
    return with_reasons(facts["message"], facts.get("reasons", {}))


def describe(error: BaseException) -> ErrorFacts:
    """Return an exception as an action answers it, without secrets."""
    if isinstance(error, sql.SQLAlchemyError):
        return _of_the_store(error)
    code = code_of(error)
    if code is None:
        return {
            "code": "UNEXPECTED",
            "message": masked(f"{type(error).__name__}: {error}"),
            "remedy": "Check the executor's log, and repair the cause. Before you repeat an order, "
            "check what was started: failover status GROUP",
        }
    path = getattr(error, "path", "")
    message = masked(str(getattr(error, "message", error)))
    facts: ErrorFacts = {
        "code": code,
        "message": f"{path}: {message}" if path else message,
        "remedy": getattr(error, "remedy", ""),
    }
    if reasons := getattr(error, "reasons", None):
        facts["reasons"] = dict(reasons)
    if isinstance(error, RefusedDocument):
        facts["problems"] = [problem_facts(each) for each in error.problems]
    if about := getattr(error, "about", None):
        facts["about"] = dict(about)
    if target := getattr(error, "target", None):
        facts["target"] = dict(target)
    if needs := getattr(error, "needs", ()):
        facts["needs"] = [each.document() for each in needs]
    if tried := getattr(error, "tried", ()):
        facts["tried"] = [
            {"what": each["what"], "found": masked(each["found"]), "at": each["at"]}
            for each in tried
        ]
    if getattr(error, "blocked", False):
        facts["blocked"] = True
    if getattr(error, "unknown", False):
        facts["unknown"] = True
    if getattr(error, "transient", False):
        facts["transient"] = True
        facts["service"] = getattr(error, "service", "") or "a service"
        facts["detail"] = masked(getattr(error, "detail", ""))
        patience = getattr(error, "patience", None)
        if isinstance(patience, int | float):
            facts["patience"] = patience
    return facts


def problem_facts(problem: DocumentProblem) -> ProblemFacts:
    """Return a problem of a group file as an action answers it, without secrets."""
    return {
        "field": problem.path,
        "code": problem.code,
        "message": masked(problem.message),
        "remedy": problem.remedy,
    }


DEFECTS = frozenset({"UNEXPECTED", "STORE_ERROR"})
"""The codes of errors that no code expects: they are defects, and are not tried again as if a
service were slow."""


def caught(error: BaseException, doing: str, project_id: str = "") -> ErrorFacts:
    """Return an exception as :func:`describe` does; one that no code expects is also logged with
    its traceback, and counted. For every handler of all exceptions that does not raise.

    ``doing``, ``project_id``: see ``defects.defect``.
    """
    facts = describe(error)
    if facts["code"] in DEFECTS:
        defect(error, doing, project_id)
    return facts


def _of_the_store(error: sql.SQLAlchemyError) -> ErrorFacts:
    """Describe an error of the state store without its own words, which quote statements. An
    operation that had started may have taken effect."""
    detail = _why_away(error)
    if detail is not None:
        return {
            "code": "STORE_UNREACHABLE",
            "message": f"The state store is not available: {detail}",
            "remedy": "Start the database of [failover] database. Unfinished work then continues "
            "by itself, or with: failover sweep",
            "unknown": True,
            "transient": True,
            "service": STORE,
            "detail": masked(detail),
        }
    number = _number(error)
    said = type(error).__name__ + (f", error {number}" if number is not None else "")
    return {
        "code": "STORE_ERROR",
        "message": f"The state store did not execute a statement ({said})",
        "remedy": "Check the executor's log, [failover] database, its user's rights, and that its "
        "schema has this version: failover doctor",
        "unknown": True,
    }


def _why_away(error: sql.SQLAlchemyError) -> str | None:
    """Return why the state store is unavailable at the moment, in a few words; None if it is
    available but did not execute a statement."""
    if not is_away(error):
        return None
    if not isinstance(error, sql.DBAPIError):
        return "no connection is free"
    said, _ = cause(error)
    number = _number(error)
    if number in READ_ONLY:
        return "it takes no changes"
    if said != NO_CAUSE:
        return said
    if not number or number in _LOST or error.connection_invalidated:
        return "connection lost"
    return f"error {number}"


def _number(error: sql.SQLAlchemyError) -> int | str | None:
    """Return the database's own number of an error: MySQL's number, or SQLite's name of it."""
    return number_of(error) or getattr(getattr(error, "orig", None), "sqlite_errorname", None)


def start_command(group: str, lost: str | None = None) -> str:
    """Return the command that continues to a goal that was not reached; or, if a member is
    ``lost``, the one that declares it lost and has it fenced."""
    return command("START", group) if lost is None else command("MOVE", group, lost=[lost])


@contextmanager
def says_how_to_continue(group: str) -> Iterator[None]:
    """Append to the remedy of an error of the cloud how the group's operation continues
    afterwards."""
    try:
        yield
    except CloudError as error:
        how = ""
        if error.blocked:
            how = "Then failover sweep continues once it sees the change. To continue at once: "
        elif error.code not in NO_RIGHTS and not isinstance(error, LeaseLost):  # a sweep goes on
            how = "To continue then: "
        if how:
            before = error.remedy.rstrip(". ")
            error.remedy = f"{before + '. ' if before else ''}{how}{start_command(group)}"
        raise


def confirm_command(group: str, member: str) -> str:
    """Return the command by which an operator confirms that a member is fenced."""
    return command("CONFIRM_FENCED", group, member=member)
