# SPDX-License-Identifier: Apache-2.0
"""What docs/server.md says is so: its commands are run, its codes are those that there are."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from server.conftest import KEY, Door
from support.pages import SOURCES, page, rows, section

PAGE = page("server")
ROOM = SOURCES / "server"
CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")


def codes(module: str, call: str, place: int) -> Iterator[str]:
    """The constants that a module hands to a function."""
    for node in ast.walk(ast.parse((ROOM / module).read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == call:
            argument = node.args[place]
            if isinstance(argument, ast.Constant) and CODE.fullmatch(str(argument.value)):
                yield str(argument.value)


def shown(heading: str) -> set[str]:
    """The codes in the tables below a heading."""
    text = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = "\n".join(line for line in text.splitlines() if line.startswith("| "))
    return set(re.findall(r"`([A-Z][A-Z_]+)`", lines))


def test_the_example_sends_a_signed_alarm(door: Door, tmp_path: Path) -> None:
    (example,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    file = tmp_path / "secret"
    file.touch(mode=0o600)
    file.write_bytes(KEY + b"\n")
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    where = {"SECRET_FILE": str(file), "WEBHOOK": door.url, "no_proxy": "127.0.0.1"}
    done = subprocess.run(
        ["bash", "-euc", example],
        cwd=tmp_path,
        env=os.environ | where | {"PATH": programs},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    (decision,) = json.loads(done.stdout)["decisions"]
    assert decision["decision"] == "HELD"
    assert "payments" in decision["sentence"], "this store has no such group"


def test_every_finding_and_every_refusal_is_explained() -> None:
    found = {*codes("checks.py", "StartProblem", 1), *codes("credential.py", "CloudError", 0)}
    for module in ("addresses.py", "secret.py", "state_dir.py", "options.py"):
        found |= set(codes(module, "CodedError", 0))
    found |= set(codes("../served_certificate.py", "CodedError", 0))
    found |= set(codes("../served_certificate.py", "CertificateProblem", 1))
    explained = shown("In a real cloud") | set(rows(section(page("reference"), "Error codes")))
    assert found <= explained | {"NO_PROJECT"}
    modules = ("receiver.py", "webhook.py", "../http_server.py")
    refusals = {code for module in modules for code in codes(module, "Refused", 1)}
    assert refusals | {"INVALID_DOCUMENT"} == shown("Alarms")


def test_the_page_names_every_option_that_is_only_the_server_s() -> None:
    from mistral_failover.cli import server

    options = set(re.findall(r'"(--[a-z-]+)"', Path(server.__file__).read_text("utf-8")))
    assert {option for option in options if option not in PAGE} <= {"--database", "--workflows"}
