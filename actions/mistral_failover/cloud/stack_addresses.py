# SPDX-License-Identifier: Apache-2.0
"""The full addresses of stacks, "name/id", that Heat has shown to this process.

Heat answers a request that has only a name or an id by a redirect to the full address, so it takes
two requests, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, translated

T = TypeVar("T")
_KEPT = 10_000
"""The maximum number of addresses; then all are forgotten."""
_known: dict[tuple[str, str], str] = {}
"""The address by Heat's endpoint, which contains the project, and by what the stack was called."""


def ask(
    cloud: Cloud,
    stack: str,
    question: Callable[[str], T],
    *,
    gone: Callable[[T], bool],
    address: Callable[[T], str | None],
) -> T:
    """Call ``question`` with the stack's address if it is known, otherwise with ``stack``.
    ``stack``: a name, an id, or an address.

    A stack that was deleted can still be read by its id, and another one may have its name by now.
    So if the answer is NOT_FOUND, or ``gone`` says that it shows a deleted stack, ``question`` is
    called again with ``stack``. ``address``: reads the address from the answer, for the next time.

    Raises what ``question`` raises, and `CloudError` if there is no Heat.
    """
    if "/" in stack:
        return question(stack)
    with translated("find Heat", "Heat"):
        key = (str(cloud.heat.http_client.get_endpoint()), stack)
    if (known := _known.get(key)) is not None:
        try:
            answer = question(known)
        except CloudError as error:
            if error.code != "NOT_FOUND":
                raise
        else:
            if not gone(answer):
                return answer
        _known.pop(key, None)
    answer = question(stack)
    if not gone(answer) and (found := address(answer)) is not None:
        if len(_known) >= _KEPT:
            _known.clear()
        _known[key] = found
    return answer
