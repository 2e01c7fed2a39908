# SPDX-License-Identifier: Apache-2.0
"""Paths of requests, made from names and ids.

An id comes from a group file, an alarm or another service's answer, and the request has the rights
of the caller. Unquoted, ``../`` or ``?`` in it would lead the request to another object. A quoted
``/`` would not help: web servers unquote a path before they look for what it names. So every path
is made here, and a part that cannot be one name is refused. A test finds paths that are written in
another way.
"""

from __future__ import annotations

from urllib.parse import quote


def url_path(*parts: str) -> str:
    """Return the path ``/part/part...``, each part quoted. Raises as `segment`."""
    return "".join(f"/{segment(part)}" for part in parts)


def segment(part: str) -> str:
    """Return a name or an id as one segment of a path: also for client libraries, which do not
    quote what they are given. Raises `CloudError` BAD_REQUEST for what is none: empty, ``.``,
    ``..``, or with a ``/``."""
    if not is_segment(part):
        from mistral_failover.cloud.errors import CloudError  # slow to import, seldom needed

        raise CloudError(
            "BAD_REQUEST",
            f"{part!r:.100} is no name or id, so no request was sent.",
            remedy="Correct it where it was given: the group file, the stack or the command.",
        )
    return quote(part, safe="")


def is_segment(part: str) -> bool:
    """Return whether a name or an id can be one segment of a path."""
    return part not in ("", ".", "..") and "/" not in part


def stack_segments(address: str) -> str:
    """Return a stack's name, its id, or its address (``name/id``) as segments of a path. Raises as
    `segment`."""
    name, slash, identity = address.partition("/")
    return f"{segment(name)}/{segment(identity)}" if slash else segment(name)
