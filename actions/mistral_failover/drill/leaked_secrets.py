# SPDX-License-Identifier: Apache-2.0
"""Whether a secret was written down where it has no business: the audit's invariant 9."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

_TOKEN_LIKE = re.compile(rb"gAAAA[\w-]{20,}")
SHORTEST = 6
"""Characters from which a secret is looked for; a shorter one stands in any text by chance."""


@dataclass(frozen=True)
class Secrets:
    """What nobody may find.

    ``token_hashes``: the SHA-256 of each of Keystone's tokens, whose texts nobody keeps. ``named``:
    further secrets by what they are, as ``{"the broker's password": "..."}``.
    """

    token_hashes: frozenset[str] = frozenset()
    named: Mapping[str, str] = field(default_factory=dict)

    def within(self, content: bytes) -> Iterator[str]:
        """What of it stands in a text, in words: as it is, or as an address has it."""
        for found in set(_TOKEN_LIKE.findall(content)):
            if hashlib.sha256(found).hexdigest() in self.token_hashes:
                yield "a token"
        for what, secret in self.named.items():
            forms = {secret.encode(), quote(secret, safe="").encode()}
            if len(secret) >= SHORTEST and any(form in content for form in forms):
                yield what


def password_of(address: str) -> str:
    """The password that stands in a URL; empty: none does."""
    return unquote(urlsplit(address).password or "")


def contents(files: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """What files hold, by their names; one that has gone meanwhile holds nothing."""
    for path in files:
        try:
            yield path.name, path.read_bytes()
        except FileNotFoundError:
            continue
