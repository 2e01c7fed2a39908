# SPDX-License-Identifier: Apache-2.0
"""``failover alarm sign``: the webhook accepts what it prints, and it names each fault."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from mistral_failover.server import secret
from support.commands import failover

KEY = "0123456789abcdef" * 2
BODY = b'{"group": "g\xc3\xbc"}\n\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "secret"
    made.touch(mode=0o600)
    made.write_text(f"{KEY}\n{'old' * 12}\n")
    return made


def parsed(output: str) -> dict[str, str]:
    return dict(line.split(": ") for line in output.splitlines())


def test_the_headers_sign_every_byte_of_the_body_and_the_time(file: Path, tmp_path: Path) -> None:
    body = tmp_path / "alarm.json"
    body.write_bytes(BODY)
    program = Path(sys.executable).with_name("failover")

    from_file = failover("alarm", "sign", "--secret-file", str(file), str(body))
    piped = subprocess.run(
        [program, "alarm", "sign", "--secret-file", file],
        input=BODY,
        capture_output=True,
        timeout=60,
        check=True,
    ).stdout.decode()

    for said in (from_file.stdout, piped):
        headers = parsed(said)
        at, signature = headers[secret.TIMESTAMP], headers[secret.SIGNATURE]
        assert abs(int(at) - time.time()) < 300
        assert secret.read(file).line_of_signature(signature, at, BODY) == 0
        assert secret.read(file).line_of_signature(signature, at, BODY[:-1]) is None
        assert len(headers) == 2
        assert KEY not in said


@pytest.mark.parametrize(
    ("key", "body", "mode", "code"),
    [
        (KEY, BODY, 0o644, "SECRET_NOT_PRIVATE"),
        ("short", BODY, 0o600, "SECRET_TOO_SHORT"),
        (None, BODY, 0o600, "SECRET_UNREADABLE"),
        (KEY, None, 0o600, "NO_FILE"),
        (KEY, b"", 0o600, "NO_FILE"),
    ],
)
def test_a_fault_of_a_file_is_told_and_nothing_is_printed(
    file: Path, tmp_path: Path, key: str | None, body: bytes | None, mode: int, code: str
) -> None:
    alarm = tmp_path / "alarm.json"
    if body is not None:
        alarm.write_bytes(body)
    if key is None:
        file.unlink()
    else:
        file.write_text(key)
        file.chmod(mode)

    done = failover("alarm", "sign", "--secret-file", str(file), str(alarm))

    assert (done.returncode, done.stdout) == (1, "")
    assert f"[{code}]" in done.stderr
    assert KEY not in done.stderr


def test_without_a_file_it_takes_the_secret_of_the_server_here(tmp_path: Path) -> None:
    done = failover("--server-state", str(tmp_path), "alarm", "sign", "-")

    assert (done.returncode, "[NO_SERVER]" in done.stderr) == (1, True)
