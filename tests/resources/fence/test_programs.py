# SPDX-License-Identifier: Apache-2.0
"""Running a program of the operator: limits, and no secret in what it printed."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from mistral_failover.cloud.transport import HandedBack
from mistral_failover.resources.fence import programs

SECRET = "s3cret-of-the-board"


def python(script: str, **more: object) -> programs.Ended:
    options: dict[str, object] = {"limit": 10.0, "secrets": [SECRET], **more}
    return programs.run([sys.executable, "-c", script], **options)  # type: ignore[arg-type]


def test_the_exit_code_and_the_output_are_returned() -> None:
    ended = python("print('on'); raise SystemExit(2)")

    assert (ended.code, ended.stdout, ended.words) == (2, "on\n", "exit code 2: on")


def test_a_program_reads_its_input_to_the_end() -> None:
    text = b"x" * 300_000

    ended = python("import sys; print(len(sys.stdin.buffer.read()))", stdin=text)

    assert ended.stdout == "300000\n"


def test_a_program_that_does_not_read_its_input_ends_normally() -> None:
    assert python("pass", stdin=b"x" * 300_000).code == 0


def test_a_program_is_killed_at_its_limit_whatever_it_does_with_its_output() -> None:
    began = time.monotonic()

    ended = python("import os, time; os.close(1); os.close(2); time.sleep(60)", limit=0.5)

    assert ended.code is None
    assert ended.why == "it did not end in time"
    assert time.monotonic() - began < 3


def test_without_time_nothing_is_started() -> None:
    assert python("open('/proc/nothing', 'w')", limit=0.0).why == "no time was left for it"


def test_a_program_that_cannot_be_started_says_why() -> None:
    assert "No such file" in programs.run(["/nowhere/fence"], limit=1.0).why


def test_a_secret_at_the_cut_of_a_long_output_is_removed_too() -> None:
    short = programs.MAX_OUTPUT - 8
    script = f"import sys; sys.stderr.write('x' * {short} + '{SECRET}' + 'y' * 100); sys.exit(1)"

    said = python(script).said

    assert SECRET[:8] not in said
    assert said.endswith("x")


@pytest.mark.parametrize("text", [SECRET, f"'{SECRET}'", f"a{SECRET}b\\n{SECRET}"])
def test_a_secret_is_removed_wherever_it_is_printed(text: str) -> None:
    ended = python(f"print({text!r}); import sys; print({text!r}, file=sys.stderr)")

    assert SECRET not in ended.stdout
    assert SECRET not in ended.said


def test_the_environment_is_the_program_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_PASSWORD", "theirs")

    ended = python("import os; print(sorted(os.environ))", environment={"MORE": "1"})

    assert "OS_PASSWORD" not in ended.stdout
    assert "MORE" in ended.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="a file of another user needs root")
def test_a_program_of_another_user_is_not_found(tmp_path: Path) -> None:
    theirs = tmp_path / "fence_theirs"
    theirs.write_text("#!/bin/sh\n", "utf-8")
    theirs.chmod(0o755)
    assert programs.find(str(theirs)) == str(theirs)

    os.chown(theirs, 12345, 12345)

    assert programs.find(str(theirs)) is None


def test_a_program_that_may_not_go_on_is_killed_with_its_group(tmp_path: Path) -> None:
    started = tmp_path / "pid"

    def going() -> None:
        if started.exists() and started.read_text():
            raise HandedBack

    with pytest.raises(HandedBack):
        python(
            f"import os, time; open({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(60)",
            limit=30.0,
            going=going,
        )

    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("#!/usr/bin/env python3", ["/usr/bin/env", "python3"]),
        ("#! /usr/bin/env -S python3 -s", ["/usr/bin/env", "-S", "python3", "-s"]),
        ("#!/bin/sh", None),
        ("#!/no/such/python3", None),
        ("#!", None),
        ("\x7fELF python", None),
    ],
)
def test_the_python_of_a_program_is_that_of_its_first_line(
    tmp_path: Path, first: str, words: list[str] | None
) -> None:
    (tmp_path / "ceph").write_text(f"{first}\nimport rados\n", "utf-8")

    assert programs.interpreter(str(tmp_path / "ceph")) == words
    assert programs.interpreter(str(tmp_path / "missing")) is None
