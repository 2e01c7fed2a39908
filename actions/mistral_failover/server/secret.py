# SPDX-License-Identifier: Apache-2.0
"""The webhook's secret, and how a sender proves that it knows it.

A file holds one secret per line, so that a new one can be distributed before the old one is
removed. A sender that can sign uses the secret itself. A sender that cannot (Aodh, Alertmanager)
gets a token derived from it, since its address ends up in logs and must not reveal the secret.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

from mistral_failover import private_files
from mistral_failover.errors import CodedError

TIMESTAMP, SIGNATURE = "X-Failover-Timestamp", "X-Failover-Signature"
SHORTEST = 32
"""Minimum length of a secret in characters."""
_FOR_TOKENS = b"failover webhook token"


class Secret:
    """What the senders know; every line of its file is valid."""

    def __init__(self, *keys: bytes) -> None:
        self._keys = keys

    @property
    def token(self) -> str:
        """The token of senders that cannot sign: of the first line."""
        return _token(self._keys[0])

    def line_of_token(self, given: str) -> int | None:
        """Return the number of the line whose token this is, from 0, in constant time. None: it is
        no token."""
        return _equal_one(given, [_token(key) for key in self._keys])

    def headers(self, body: bytes, at: int) -> dict[str, str]:
        """Return the headers that sign a body, by the first line. ``at``: when it is sent, in
        seconds since the epoch."""
        return {TIMESTAMP: str(at), SIGNATURE: signed(self._keys[0], str(at), body)}

    def line_of_signature(self, signature: str, timestamp: str, body: bytes) -> int | None:
        """Return the number of the line under which this is the signature of a body with its
        timestamp, from 0. None: it is no signature."""
        return _equal_one(signature, [signed(key, timestamp, body) for key in self._keys])


def signed(key: bytes, timestamp: str, body: bytes) -> str:
    """The signature: HMAC-SHA256, in hexadecimal, of the timestamp, a full stop and the body."""
    return hmac.new(key, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def read(file: Path) -> Secret:
    """The secret in a file.

    Raises CodedError SECRET_UNREADABLE, SECRET_NOT_PRIVATE, SECRET_TOO_SHORT.
    """
    try:
        lines = [line.strip() for line in private_files.read(file, installed=True).splitlines()]
    except private_files.NotPrivate as error:
        raise CodedError("SECRET_NOT_PRIVATE", error.message, error.remedy) from None
    except OSError as error:
        raise CodedError(
            "SECRET_UNREADABLE",
            f"the secret {file} cannot be read: {error.strerror}",
            _make_one(file),
        ) from None
    keys = [line for line in lines if line]
    if not keys or min(map(len, keys)) < SHORTEST:
        raise CodedError(
            "SECRET_TOO_SHORT",
            f"a secret in {file} has fewer than {SHORTEST} characters",
            _make_one(file),
        )
    return Secret(*keys)


def read_or_make(file: Path) -> Secret:
    """Read the secret in a file, and create the file if it is missing. Raises as :func:`read`."""
    if not file.exists():
        private_files.write(file, secrets.token_hex(SHORTEST) + "\n")
    return read(file)


def _token(key: bytes) -> str:
    return hmac.new(key, _FOR_TOKENS, hashlib.sha256).hexdigest()


def _equal_one(given: str, known: list[str]) -> int | None:
    # All of them, so that the duration does not tell which one it was.
    found = [hmac.compare_digest(given.encode(), each.encode()) for each in known]
    return found.index(True) if any(found) else None


def _make_one(file: Path) -> str:
    return f"(umask 077; openssl rand -hex {SHORTEST} > {file})"
