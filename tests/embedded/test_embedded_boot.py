# SPDX-License-Identifier: Apache-2.0
"""The backend of oslo.service is chosen once, before Mistral is imported."""

import json
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from mistral_failover.doctor import mistral
from mistral_failover.doctor.checks import Examination
from mistral_failover.mistral import releases
from mistral_failover.server import checks
from mistral_failover.server.options import Options


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True
    )
    return done.stdout.strip()


SCRIPTS = {
    "it may be called any number of times and chooses threads": (
        "from mistral_failover.embedded import boot; boot.init(); boot.init()\n"
        "from oslo_service import backend; print(backend.get_backend_type().value)",
        "threading",
    ),
    "a process that is on eventlet already is told so": (
        "from oslo_service import backend; backend.init_backend(backend.BackendType.EVENTLET)\n"
        "from mistral_failover import errors; from mistral_failover.embedded import boot\n"
        "try: boot.init()\n"
        "except errors.CodedError as e: print(e.code)",
        "WRONG_SERVICE_BACKEND",
    ),
    "eventlet is hidden while Mistral is imported and usable afterwards": (
        "import sys; from mistral_failover.embedded import boot\n"
        "with boot.quick_imports(): boot.init(); print(sys.modules['eventlet'])\n"
        "import eventlet; print(eventlet.__name__)",
        "None\neventlet",
    ),
    "a process that uses eventlet keeps it": (
        "import eventlet; from mistral_failover.embedded import boot\n"
        "with boot.quick_imports(): import eventlet as still\n"
        "print(still is eventlet)",
        "True",
    ),
}


@pytest.mark.parametrize(("script", "said"), SCRIPTS.values(), ids=SCRIPTS)
def test_the_backend(script: str, said: str) -> None:
    assert run(script) == said


ATTRIBUTES = """
import contextlib, json
from mistral_failover.embedded import boot
boot.init()
with {around}:
    from mistral import config
    from mistral.api.controllers.v2 import resources
    from wsme.types import Base
types = [each for each in vars(resources).values() if isinstance(each, type(Base))]
print(json.dumps({{each.__name__: sorted(a.key for a in each._wsme_attributes) for each in types}}))
"""


def test_the_types_of_mistrals_api_have_the_same_attributes_as_with_wsmes_own_order() -> None:
    quick = json.loads(run(ATTRIBUTES.format(around="boot.quick_imports()")))
    assert quick == json.loads(run(ATTRIBUTES.format(around="contextlib.nullcontext()")))
    assert "state_info" in quick["Execution"]


@pytest.mark.parametrize("found", ["19.1.1", "22.0.0", "24.0.0"])
def test_a_mistral_that_cannot_run_in_this_process_is_named(
    found: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(releases, "installed", lambda: found)

    (problem,) = [
        each
        for each in checks.run_checks(Options(state_dir=tmp_path / "state"))
        if each.code == "MISTRAL_NOT_TESTED"
    ]

    assert problem.grave
    assert problem.message == (
        f"Mistral {found} is installed here, and failover server and failover drill run only "
        "Mistral 23"
    )


@pytest.mark.parametrize(
    ("found", "level", "said"),
    [
        ("21.0.0", "ok", "this executor runs Mistral 21.0.0 of OpenStack 2025.2"),
        ("24.0.0", "warn", "Mistral 24.0.0, with which this package is not tested"),
    ],
)
def test_the_doctor_says_whether_the_mistral_is_tested(
    found: str, level: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "installed", lambda: found)

    (finding,) = mistral.release(cast(Examination, None))

    assert finding.level == level
    assert said in finding.sentence
