# SPDX-License-Identifier: Apache-2.0
"""Check whether a secret was written where it must not be: the audit's invariant 9."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

_TOKEN_LIKE = re.compile(rb"gAAAA[\w-]{20,}")
SHORTEST = 6
"""The minimum length of a secret to look for; a shorter one occurs in any text by chance."""


@dataclass(frozen=True)
class Secrets:
    """The secrets that must not be found.

    ``token_hashes``: the SHA-256 of each of Keystone's tokens, whose texts are not kept. ``named``:
    further secrets by name, as ``{"the broker's password": "..."}``.
    """

    token_hashes: frozenset[str] = frozenset()
    named: Mapping[str, str] = field(default_factory=dict)

    def within(self, content: bytes) -> Iterator[str]:
        """Return the names of the secrets in a text, as they are or in the form of a URL."""
        for found in set(_TOKEN_LIKE.findall(content)):
            if hashlib.sha256(found).hexdigest() in self.token_hashes:
                yield "a token"
        for what, secret in self.named.items():
            forms = {secret.encode(), quote(secret, safe="").encode()}
            if len(secret) >= SHORTEST and any(form in content for form in forms):
                yield what


def password_of(address: str) -> str:
    """Return the password in a URL; empty if there is none."""
    return unquote(urlsplit(address).password or "")


def contents(files: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """Return the content of files by their names; a file that no longer exists is empty."""
    for path in files:
        try:
            yield path.name, path.read_bytes()
        except FileNotFoundError:
            continue
