# SPDX-License-Identifier: Apache-2.0
"""The kinds of rungs that a fence ladder can have.

A kind of rung is one class, and one entry point of the group ``mistral_failover.rungs`` that gives
it its name. The schema of group files, the goal, the plan, the doctor, the ladder and the
documentation use :func:`rung_kinds`. :class:`RungKind` describes a kind without running it;
``resources.fence.rung.FenceRung`` adds how it runs.
"""

import functools
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

from mistral_failover.model.installed import installed
from mistral_failover.model.schemas import SECONDS

RUNGS = "mistral_failover.rungs"
"""The group of the entry points."""

Rung = Mapping[str, Any]
"""One rung of a ladder, with every default filled in: ``kind``, ``limit`` in seconds, and the
fields of its kind."""


class HostRung(StrEnum):
    """The kinds of rungs with which an operator can fence a whole host by hand."""

    HOST_POWER = "host_power"
    STORAGE = "storage"


class ServerAfter(StrEnum):
    """What a proof says about the member's server."""

    RUNNING = "running"
    """The guest still runs; only its applications have stopped."""
    SHUTOFF = "shutoff"
    """Nova has the server SHUTOFF. If Nova shows it ACTIVE later, it was started again."""
    CUT_OFF = "cut_off"
    """The guest is off, deleted, or cut off from everything that the group had there: it neither
    writes nor answers at an address. What Nova shows of the server proves nothing."""


class RungKind:
    """One kind of rung. A subclass sets the class variables; the defaults suit most kinds."""

    proof: ClassVar[str]
    """What proves the fence, as a clause; ``{field}`` is the value of a required field."""
    limit: ClassVar[float]
    """Seconds to wait for a proof, unless the group file says otherwise."""
    fields: ClassVar[Mapping[str, Any]] = {}
    """JSON schema of each field in addition to ``kind`` and ``limit``, with the keywords that type
    files may use and ``pattern``. A kind that has a field with its own name needs no ``kind``."""
    required: ClassVar[tuple[str, ...]] = ()
    """Fields that must be given. A kind without any may be written as a word."""
    server_after: ClassVar[ServerAfter] = ServerAfter.CUT_OFF
    for_dead_host: ClassVar[bool] = False
    """Whether it can prove something about a member whose host is dead."""
    of_disks: ClassVar[bool] = False
    """Whether its proof is about disks alone, which the fence's record then names (``disks``): the
    guest may run on, and write to others."""
    deletes_server: ClassVar[bool] = False
    """Whether it deletes the member's servers."""
    asks_operator: ClassVar[bool] = False
    """Whether it asks for an operator's confirmation, which does not block the ladder."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        """The name in group files."""

    def name(self, rung: Rung) -> str:
        """Return the name of a rung; it is unique in a ladder."""
        return self.kind

    def read(self, stated: Mapping[str, Any], path: str) -> Rung:
        """Return the rung with its defaults. ``stated`` is from a group file and fits
        :meth:`schema`.

        :raises InvalidDocument: with a path below ``path``, for errors that the schema cannot
            express.
        """
        limit = float(stated.get("limit", self.limit))
        return {**stated, "kind": self.kind, "limit": limit}

    def longest(self, rung: Rung) -> float:
        """Return the maximum number of seconds until the next rung is tried."""
        return float(rung["limit"])

    def words(self, rung: Rung) -> str:
        """Return how a plan names the rung."""
        return f"{self.proof.format_map(rung)} (within {rung['limit']:g} s)"

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of a rung that is written as a mapping."""
        return {
            "properties": {"kind": {}, "limit": SECONDS, **self.fields},
            "required": list(self.required),
            "additionalProperties": False,
        }


class _NotInstalled(RungKind):
    """A kind in a stored goal that no installed package provides. It proves the least."""

    proof = "a rung whose package is not installed proves it"
    limit = 0.0
    server_after = ServerAfter.RUNNING


@functools.cache
def rung_kinds() -> Mapping[str, RungKind]:
    """Return every installed kind by its name."""
    return {name: kind(name) for name, kind in installed(RUNGS).items()}


def rung_kind(name: str) -> RungKind:
    """Return the kind of this name; a stand-in if it is not installed."""
    return rung_kinds().get(name) or _NotInstalled(name)


def read_rung(stated: str | Mapping[str, Any], path: str) -> Rung:
    """Return a rung of a group file that fits :func:`rung_schema`, with its defaults.

    :raises InvalidDocument: with a path that begins with ``path``.
    """
    if isinstance(stated, str):
        stated = {"kind": stated}
    kind = stated.get("kind") or next(name for name in _named_by_a_field() if name in stated)
    return rung_kinds()[kind].read(stated, path)


def rung_schema() -> dict[str, Any]:
    """Return the JSON schema of a rung in a group file: a word, or a mapping."""
    kinds = rung_kinds()
    named = _named_by_a_field()
    without_kind = {"properties": {"kind": False}}
    by_kind = [
        {"if": {"properties": {"kind": {"const": name}}, "required": ["kind"]}, "then": k.schema()}
        for name, k in kinds.items()
    ]
    by_field = [
        {"if": {**without_kind, "required": [name]}, "then": kinds[name].schema()} for name in named
    ]
    return {
        "type": ["string", "object"],
        "if": {"type": "string"},
        "then": {"enum": [name for name, kind in kinds.items() if not kind.required]},
        "else": {
            "properties": {"kind": {"enum": list(kinds)}},
            "allOf": [*by_kind, *by_field],
            "if": {"properties": dict.fromkeys(named, False)},
            "then": {"required": ["kind"]},
        },
    }


def _named_by_a_field() -> list[str]:
    return [name for name, kind in rung_kinds().items() if name in kind.fields]
