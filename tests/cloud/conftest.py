# SPDX-License-Identifier: Apache-2.0
"""An emulated cloud, and a server that answers as a test says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mistral_failover.cloud import session
from support.emulated import cloud, connect, emulated, emulator, group, pair
from support.scripted_http import ScriptedServer, scripted_server

__all__ = ["cloud", "connect", "emulated", "emulator", "group", "pair"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """A scripted server on a free port of this machine, of which nothing is known yet: an earlier
    one may have had the same port."""
    for known in ("_tokens", "_entries"):
        monkeypatch.setattr(session, known, session._AuthenticationCache())
    with scripted_server() as scripted:
        yield scripted
