# SPDX-License-Identifier: Apache-2.0
"""The installation's secret, from which the keys of all members' agents are derived."""

from __future__ import annotations

from pathlib import Path

from mistral_failover import private_files
from mistral_failover.agent.channel.interface import ChannelError

LEAST = 32
"""Minimum length of the secret in bytes, without surrounding white space."""


def read_secret(path: str | None) -> bytes:
    """The secret in a file, read anew each time.

    Raises `ChannelError` CONFIG if the file is missing, too short, or not private.
    """
    if not path:
        raise _wrong("No file with the secret of the members' agents is configured.", "FILE")
    try:
        secret = private_files.read(Path(path), installed=True).strip()
    except private_files.NotPrivate as error:
        raise ChannelError(
            "CONFIG",
            f"{error.message}.",
            f"{error.remedy}. If another user may have read or changed it, make a new secret and "
            "new member keys.",
        ) from None
    except FileNotFoundError:
        raise ChannelError(
            "CONFIG",
            f"{path} does not exist.",
            f"Copy it from another executor. Only if no executor has one yet: {_making(path)}",
        ) from None
    except OSError as error:
        raise ChannelError(
            "CONFIG",
            f"{path} cannot be read: {error.strerror}.",
            "Let Mistral's user read it: a file of that user with mode 0600, or of root with mode "
            "0640 and Mistral's group. Do not make a new secret: with another one no agent accepts "
            "a command.",
        ) from None
    if len(secret) < LEAST:
        raise _wrong(f"{path} holds {len(secret)} bytes; at least {LEAST} are needed.", path)
    return secret


def _wrong(message: str, path: str) -> ChannelError:
    return ChannelError(
        "CONFIG",
        message,
        f"Set [failover] agent_key_file to a file that only Mistral can read, the same on every "
        f"executor: {_making(path)}",
    )


def _making(path: str) -> str:
    """Return the command that makes a new secret."""
    return f"(umask 077; openssl rand -hex 32 > {path})"
