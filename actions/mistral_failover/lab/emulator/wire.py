# SPDX-License-Identifier: Apache-2.0
"""Conventions that several services share: microversions and pages."""

import re
from collections.abc import Callable
from operator import attrgetter
from typing import TypeVar

from mistral_failover.lab.emulator.web import ApiError, Call

T = TypeVar("T")


def newest(call: Call, service: str, highest: tuple[int, int]) -> tuple[int, int]:
    """The newest microversion that a service offers: ``highest``, unless an older release is
    played."""
    up_to = call.emulation.state.offers.get(service, {}).get("up_to")
    return numbers(up_to) if up_to else highest


def numbers(version: str) -> tuple[int, int]:
    """A microversion such as "2.79" in a form that compares. Raises ValueError."""
    major, minor = version.split(".")
    return int(major), int(minor)


def microversion(
    header: str | None,
    service: str,
    lowest: tuple[int, int],
    highest: tuple[int, int],
    *,
    plain: str | None = None,
) -> tuple[int, int]:
    """The microversion that a request asks for; the lowest when it asks for none.

    :param header: `OpenStack-API-Version`, e.g. "compute 2.79, volume 3.59" or "compute latest".
    :param plain: the value of an older header that carries the number alone.
    :raises ApiError: 406 for a version out of range, 400 for no version at all.
    """
    wanted = plain
    for part in (header or "").split(","):
        words = part.split()
        if len(words) == 2 and words[0] == service:
            wanted = words[1]
    if wanted is None:
        return lowest
    if wanted == "latest":
        return highest
    match = re.fullmatch(r"(\d+)\.(\d+)", wanted)
    if match is None:
        message = f"API Version String {wanted} is of invalid format."
        raise ApiError(400, {"badRequest": {"code": 400, "message": message}})
    version = (int(match[1]), int(match[2]))
    if not lowest <= version <= highest:
        least, most = (".".join(map(str, limit)) for limit in (lowest, highest))
        message = (
            f"Version {wanted} is not supported by the API. Minimum is {least} and maximum is "
            f"{most}."
        )
        raise ApiError(406, {"computeFault": {"code": 406, "message": message}})
    return version


def paged(
    call: Call,
    rows: list[T],
    key: Callable[[T], str] = attrgetter("id"),
    no_marker: Callable[[str], ApiError] | None = None,
) -> list[T]:
    """The page that `marker` and `limit` name. ``no_marker``: the service's answer to a marker that
    it does not know, None if it then begins with the first row."""
    marker, limit = call.query("marker"), call.query("limit")
    if marker:
        at = next((i for i, row in enumerate(rows) if key(row) == marker), None)
        if at is None and no_marker is not None:
            raise no_marker(marker)
        rows = rows[at + 1 :] if at is not None else rows
    return rows[: int(limit)] if limit and limit.isdigit() else rows
