# SPDX-License-Identifier: Apache-2.0
"""What runs pip as root takes no package of the index by its name alone, and what it does take is
pinned with hashes."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.pages import ROOT

EXAMPLES, DEPLOY = ROOT / "examples", ROOT / "deploy"
AS_ROOT = [
    ROOT / "Containerfile",
    *(path for folder in (DEPLOY, EXAMPLES, ROOT / "devstack") for path in folder.rglob("*")),
]
FILE = re.compile(r"/wheels/|\bwheel\b")
WITHIN_CONSTRAINTS = {  # OpenStack's, of images and hosts whose index their operator chose
    "RUN {{ macros.install_pip([\"'mistral-failover[mysql]==VERSION'\"]) }}",
}


def calls(path: Path) -> list[str]:
    """The commands of a file that install with pip, without line breaks."""
    if not path.is_file() or path.suffix in (".pyc", ".py"):
        return []
    text = re.sub(r" *\\\n\s*", " ", path.read_text("utf-8"))
    text = re.sub(r",\n\s+--", ", --", text)  # of a list in YAML
    return [
        part.strip()
        for line in text.splitlines()
        if not line.lstrip().startswith("#")
        for part in re.split("&&|;", line)
        if re.search(r"\bpip\S*,?( --\S+)* install\b|install_pip", part)
    ]


def test_pip_as_root_takes_only_files_whose_hash_is_known() -> None:
    found = {(path.relative_to(ROOT), each) for path in AS_ROOT for each in calls(path)}

    assert len(found) >= 8, "there are some"
    loose = {each for _, each in found if "--require-hashes" not in each and not FILE.search(each)}
    assert loose == WITHIN_CONSTRAINTS


def pins(text: str) -> dict[str, set[str]]:
    """The requirements of a file, with their hashes."""
    lines = re.sub(r" *\\\n\s*", " ", text).splitlines()
    split = [re.split(r" --hash=sha256:", each) for each in lines if each and each[0] != "#"]
    return {each[0].strip(): set(each[1:]) for each in split}


AGENT = pins((DEPLOY / "agent" / "requirements.txt").read_text("utf-8"))


def requirements() -> dict[str, dict[str, set[str]]]:
    found = {"failover-agent.txt": pins((EXAMPLES / "failover-agent.txt").read_text("utf-8"))}
    for name in ("cloud-init.yaml", "protected-servers.yaml", "protected-group.yaml"):
        text = (EXAMPLES / name).read_text("utf-8")
        block = re.split(r"path: /etc/failover-agent.txt\n *content: [|]\n", text)[1]
        lines = block.partition("runcmd:")[0].splitlines()
        found[name] = pins("\n".join(line.strip() for line in lines))
    return found


@pytest.mark.parametrize("name", requirements())
def test_each_example_installs_the_same_pinned_files(name: str) -> None:
    found = dict(requirements()[name])
    own = [each for each in found if "==" not in each or "VERSION" in each]

    assert len(own) == 1, "the package, which the operator fills in"
    del found[own[0]]
    assert set(found) == set(AGENT)
    assert all(each and each <= AGENT[pin] for pin, each in found.items())
    assert found == {k: v for k, v in requirements()["failover-agent.txt"].items() if k in AGENT}


def test_the_image_of_the_server_is_pinned_and_has_what_the_package_needs() -> None:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = parser["options.extras_require"]
    needed = [parser["options"]["install_requires"], extras["embedded"], extras["mysql"]]
    pinned: dict[str, list[Requirement]] = {}

    def named(each: Requirement) -> str:
        return canonicalize_name(each.name)

    for text, hashes in pins((DEPLOY / "server.txt").read_text("utf-8")).items():
        each = Requirement(text)
        assert hashes, text
        assert str(each.specifier).startswith("=="), text
        pinned.setdefault(named(each), []).append(each)

    for line in filter(str.strip, "\n".join(needed).splitlines()):
        wanted = Requirement(line)
        if wanted.name == "mistral-failover-agent":
            continue  # its wheel is built beside the package's
        for each in pinned[named(wanted)]:
            (version,) = each.specifier
            assert wanted.specifier.contains(version.version), line


def test_openstack_ansible_installs_the_two_wheels() -> None:
    file = DEPLOY / "openstack-ansible" / "user_variables_failover.yml"
    agent, package = yaml.safe_load(file.read_text("utf-8"))["mistral_user_pip_packages"]

    assert agent.startswith("mistral-failover-agent @ https://")
    assert package.startswith("mistral-failover[mysql] @ https://")
    assert all(each.endswith(".whl#sha256=HASH") for each in (agent, package))


def test_each_base_image_can_be_given_by_its_digest() -> None:
    text = (ROOT / "Containerfile").read_text("utf-8")
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE))
    bases = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) - stages

    arguments = {f"${{{name}}}" for name in re.findall(r"^ARG (\w+_IMAGE)=", text, re.MULTILINE)}
    assert bases == arguments
