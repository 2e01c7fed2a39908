# SPDX-License-Identifier: Apache-2.0
"""Text that a member, a sender of alarms or another user wrote does nothing on an operator's
terminal: it is cleaned where it arrives, and once more where it is printed."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from mistral_failover.agent import wire
from mistral_failover.agent.channel.conversation import Conversation
from mistral_failover.agent.channel.interface import Command
from mistral_failover.agent.daemon import main as agent
from mistral_failover.cli.connection import CommandFailed
from mistral_failover.cli.progress import Progress
from mistral_failover.model.text import clean, plain
from mistral_failover.runtime import inputs
from mistral_failover.runtime.errors import describe, masked, masked_body
from support.commands import failover

HOSTILE = "one\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt.exe\u2066\r\ud800two"
ACTING = ("\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\r", "\ud800")


def acts(text: str) -> list[str]:
    """What of a text would act on a terminal."""
    return [each for each in ACTING if each in text]


@pytest.fixture
def mistral() -> Iterator[str]:
    """The URL of an API that answers every action with a history of hostile sentences."""
    step = {"id": 1, "at": 0.0, "kind": "step", "sentence": HOSTILE, "traversal_id": None}
    answer = json.dumps({"state": "SUCCESS", "output": json.dumps({"result": [step]})}).encode()

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(201)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v2"
        server.shutdown()
        thread.join()


def test_a_clean_text_shows_what_was_there_and_stays_as_it_is() -> None:
    shown = clean(HOSTILE)

    assert not acts(shown)
    assert r"\x1b]0;owned\x07" in shown
    assert r"\u202etxt.exe" in shown
    assert clean(shown) == shown
    assert (
        clean("line one\r\nline two\tmore: Grüße, 復旧") == "line one\nline two\tmore: Grüße, 復旧"
    )


def test_a_word_in_a_sentence_is_one_line_without_reordering() -> None:
    assert not acts(plain(HOSTILE.replace("\ud800", "")))
    assert "\n" not in plain("two\nlines")


@pytest.mark.parametrize("formatter", ["table", "csv", "value"])
def test_what_is_printed_for_people_and_scripts_is_clean(mistral: str, formatter: str) -> None:
    done = failover("--mistral-url", mistral, "history", "payments", "-f", formatter)

    assert done.returncode == 0, done.stderr
    assert not acts(done.stdout.replace("\r\n", "\n"))  # CSV ends its lines with both
    assert r"\x1b]0;owned" in done.stdout


def test_json_keeps_the_text_in_its_own_escapes(mistral: str) -> None:
    done = failover("--mistral-url", mistral, "history", "payments", "-f", "json")

    assert not acts(done.stdout)
    (row,) = json.loads(done.stdout)
    assert row["sentence"] == HOSTILE


def test_the_steps_of_an_order_and_the_reason_of_a_failure_are_clean() -> None:
    screen = io.StringIO()
    with Progress(screen) as tell:
        tell(1.0, "failed", HOSTILE)

    assert not acts(screen.getvalue())
    assert not acts(str(CommandFailed(HOSTILE, HOSTILE)))


def test_what_an_agent_says_is_clean_as_soon_as_it_is_believed() -> None:
    said = HOSTILE.replace("\ud800", "")
    to = wire.Address("g", "payments", "db_a", "s-1")
    talk = Conversation.__new__(Conversation)
    talk._command = Command("c", to, 1, "start_database")

    result = talk._understand(
        {"state": "done", "exit_code": 1, "stdout": said, "stderr": said, "replayed": False}
    )
    refused = talk._understand({"state": "refused", "code": "REFUSED", "message": said})

    assert not acts(result.stdout + result.stderr)  # type: ignore[union-attr]
    assert not acts(str(refused))


def test_errors_reasons_and_bodies_of_alarms_are_clean_before_they_are_stored() -> None:
    assert not acts(describe(RuntimeError(HOSTILE))["message"])
    assert not acts(masked(HOSTILE))
    assert not acts(inputs.text("because", HOSTILE))
    ((key, value),) = masked_body({HOSTILE: [HOSTILE]}).items()
    assert not acts(key + value[0])


def test_the_agents_own_command_line_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    agent._tell(HOSTILE)
    agent._say(HOSTILE)

    assert not acts("".join(capsys.readouterr()))
