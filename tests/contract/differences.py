# SPDX-License-Identifier: Apache-2.0
"""Where the emulated cloud answers otherwise than the real services did, in the same tests.

``python -m contract.differences FOLDER`` compares what ``--record`` wrote of the emulated cloud
with `RECORDED`, which ``--keep`` makes of a folder that was recorded on the test cloud. Every
difference is repaired or has its reason in `EXPLAINED`; exit code 1 if one has none, or if a reason
has no difference any more.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml

from contract.recorder import Recording, merged

HERE = Path(__file__).parent
RECORDED = HERE / "answers_of_real_services.json"
"""The forms of what the services of the test cloud answered."""
EXPLAINED = HERE / "differences.yaml"
"""The differences that stay, by their reason; ``...`` stands for any text."""
PRODUCT = HERE.parents[1] / "actions" / "mistral_failover"


def differences(real: Recording, emulated: Recording) -> Iterator[tuple[str, str]]:
    """Yield each difference: its kind and where it is.

    ``invented``: a field that the real service does not have. ``missing``: one that the product
    reads and the emulated cloud lacks. ``type``: one that has another type there. ``status``: an
    answer that only one of them gave. ``header``: one that only the real service sent.
    """
    for request in sorted(real.keys() & emulated.keys()):
        theirs, ours = real[request], emulated[request]
        for status in sorted(ours.keys() - theirs.keys()):
            yield "status", f"{request} {status}: only the emulated cloud"
        for status in sorted(theirs.keys() - ours.keys()):
            yield "status", f"{request} {status}: only the real services"
        for status in sorted(theirs.keys() & ours.keys()):
            where = f"{request} {status}"
            for header in sorted({*theirs[status]["headers"]} - {*ours[status]["headers"]}):
                if header != "location" or status.startswith("3"):
                    yield "header", f"{where}: {header}"
            if not status.startswith("2"):
                continue
            there, here = theirs[status]["fields"], ours[status]["fields"]
            for path in sorted(here.keys() - there.keys()):
                if path.rpartition(".")[0] in there or not path.count("."):
                    yield "invented", f"{where}: {path}"
            for path in sorted(there.keys() - here.keys()):
                # The elements of a list that was empty say nothing.
                if path.rpartition(".")[0] in here and path.rpartition(".")[2] in read_fields():
                    yield "missing", f"{where}: {path}"
            for path in sorted(there.keys() & here.keys()):
                if extra := {*here[path]} - {*there[path]}:
                    yield "type", f"{where}: {path} is {'|'.join(sorted(extra))}"


@cache
def read_fields() -> frozenset[str]:
    """The names that the product's adapters use: texts, and attributes of clients' objects."""
    found = set()
    for folder in ("cloud", "resources", "alarms", "doctor"):
        for file in (PRODUCT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
                elif isinstance(node, ast.Attribute):
                    found.add(node.attr)
    return frozenset(found)


def main() -> int:
    """Compare, or keep what was recorded on the test cloud."""
    parser = argparse.ArgumentParser(prog="python -m contract.differences", description=__doc__)
    parser.add_argument("folder", type=Path, help="what --record wrote")
    parser.add_argument("--keep", action="store_true", help="it was recorded on the test cloud")
    chosen = parser.parse_args()
    recording = merged(sorted(chosen.folder.glob("*.json")))
    if chosen.keep:
        RECORDED.write_text(json.dumps(recording, indent=1, sort_keys=True) + "\n", "utf-8")
        print(f"{len(recording)} requests are kept in {RECORDED.name}.")
        return 0
    real: Recording = json.loads(RECORDED.read_text("utf-8"))
    reasons: dict[str, list[str]] = yaml.safe_load(EXPLAINED.read_text("utf-8")) or {}
    unused = {pattern for patterns in reasons.values() for pattern in patterns}
    known = {pattern: _compiled(pattern) for pattern in unused}
    new = explained = 0
    for kind, where in differences(real, recording):
        said = f"{kind} {where}"
        if fits := {pattern for pattern, compiled in known.items() if compiled.fullmatch(said)}:
            unused -= fits
            explained += 1
        else:
            new += 1
            print(said)
    for pattern in sorted(unused):
        print(f"no difference any more: {pattern}")
    compared = len(real.keys() & recording.keys())
    print(f"{compared} requests compared: {new} new differences, {explained} explained.")
    return 1 if new or unused else 0


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(re.escape("..."), ".*"))


if __name__ == "__main__":
    sys.exit(main())
