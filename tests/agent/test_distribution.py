# SPDX-License-Identifier: Apache-2.0
"""The agent is a distribution of its own: few dependencies, and nothing of the rest."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path

from support.pages import AGENT, ROOT, SOURCES

PROJECT = tomllib.loads((ROOT / "agent" / "pyproject.toml").read_text("utf-8"))["project"]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]


def modules(root: Path) -> set[str]:
    """The modules of a folder of the namespace."""
    paths = {path.relative_to(root.parent).with_suffix("") for path in root.rglob("*.py")}
    return {".".join(path.parts).removesuffix(".__init__") for path in paths}


def test_a_guest_gets_kombu_and_pyyaml_and_what_they_need() -> None:
    assert [re.split("[<>=]", each)[0] for each in PROJECT["dependencies"]] == ["kombu", "PyYAML"]


def test_no_module_is_in_both_distributions() -> None:
    assert modules(AGENT) & modules(SOURCES) == set()


def test_no_folder_of_both_has_a_file_that_hides_the_other_ones() -> None:
    for folder in ("", "agent", "model"):
        for root in (AGENT, SOURCES):
            assert (root / folder).is_dir()
            assert not (root / folder / "__init__.py").exists()


def test_the_contract_is_about_every_module_of_the_agent() -> None:
    (contract,) = (each for each in CONTRACTS["contracts"] if "guest" in each["name"])
    sources = contract["source_modules"]

    def named(module: str) -> bool:
        return any(module == each or module.startswith(f"{each}.") for each in sources)

    assert {each for each in modules(AGENT) if not named(each)} == set()


def test_both_have_one_version_and_the_executors_need_that_agent() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")

    assert PROJECT["version"] == setup["metadata"]["version"]
    needed = setup["options"]["install_requires"].split()
    assert f"{PROJECT['name']}=={PROJECT['version']}" in needed
