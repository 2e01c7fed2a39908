# SPDX-License-Identifier: Apache-2.0
"""What a group file without a stack names: servers, volumes and addresses, by name, id or tag.

A group with a stack has its members and volumes from there: the stack says what is behind a name,
whenever it is asked. A group without one has a table of its own: each name of its file, and the id
that was found behind it when the file was accepted. That table is stored with the definition. So
another server that gets the name or the tag later moves nothing.

A name is text, or a mapping with one of these keys::

    {name: db-a}           # the name in the cloud; of a floating IP: its address
    {id: 5f0c...}
    {tag: role=db-a}       # a tag; of a server and a volume also an item of its metadata
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypedDict, get_args
from uuid import UUID

from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.validation import did_you_mean

By = Literal["name", "id", "tag"]
WAYS: frozenset[By] = frozenset(get_args(By))
"""The keys of a mapping that names something."""


class Thing(StrEnum):
    """What can be named. The value is that of ``names`` in a type file."""

    SERVER = "server"
    VOLUME = "volume"
    PORT = "port"
    FLOATING_IP = "floating_ip"
    POOL = "pool"

    @property
    def words(self) -> str:
        """Return it as people say it."""
        return {"floating_ip": "floating IP", "pool": "pool of a load balancer"}.get(self, self)


class Identity(TypedDict):
    """What was found behind a name. ``created_at``: in seconds since the epoch; None of what is no
    server."""

    id: str
    created_at: float | None


@dataclass(frozen=True)
class Named:
    """Something that a group file names. ``path``: its place in the file, as of `InvalidDocument`;
    ``by`` and ``value``: how it is named."""

    path: str
    thing: Thing
    by: By
    value: str

    def __str__(self) -> str:
        """Return it in words."""
        return f'{self.thing.words} with the {self.by} "{self.value}"'


def read_named(given: Any, path: str, thing: Thing) -> Named:
    """Read how a group file without a stack names something.

    :raises InvalidDocument: if it is neither text nor a mapping with one of the keys.
    """
    if isinstance(given, Mapping):
        for key in given:
            if key not in WAYS:
                raise InvalidDocument(
                    f"{path}.{key}", f'unknown key "{key}"', did_you_mean(str(key), WAYS)
                )
        if len(given) == 1:
            ((by, value),) = given.items()
            if isinstance(value, str) and 0 < len(value) <= 255:
                return Named(path, thing, by, value)
    elif isinstance(given, str) and 0 < len(given) <= 255:
        return Named(path, thing, "id" if is_id(given) else "name", given)
    raise InvalidDocument(
        path,
        f"it does not name a {thing.words}",
        "Write a name or an id, or a mapping with one of the keys name, id and tag.",
    )


def is_id(text: str) -> bool:
    """Return whether a text has the form of an id in OpenStack."""
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False
