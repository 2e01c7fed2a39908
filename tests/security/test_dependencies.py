# SPDX-License-Identifier: Apache-2.0
"""An installation gets no library whose version is known to be vulnerable."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

SETUP = Path(__file__).parents[2] / "setup.cfg"


BESIDE = {"uvicorn": "h11"}
"""What a dependency brings with it whose own lower bound is too low: an extra names it as well."""


OF_A_RELEASE = {"requests", "urllib3"}
"""What a release of OpenStack fixes for the Mistral into which the package is installed; who ships
that release repairs it there. An installation of our own, by an extra, has a bound of its own."""


def lists() -> dict[str, dict[str, Requirement]]:
    """The dependencies of the package ("") and of each extra, by name."""
    parser = configparser.ConfigParser()
    parser.read(SETUP, encoding="utf-8")
    written = {"": parser["options"]["install_requires"], **parser["options.extras_require"]}
    return {
        extra: {
            each.name.lower(): each
            for each in map(Requirement, filter(str.strip, lines.split("\n")))
        }
        for extra, lines in written.items()
    }


def test_an_extra_names_the_version_of_what_its_dependencies_bring() -> None:
    named = lists()

    bringing = [(extra, name) for extra, each in named.items() for name in BESIDE if name in each]
    assert bringing
    assert [(e, name) for e, name in bringing if BESIDE[name] not in named[e]] == []


@pytest.mark.parametrize(
    ("name", "vulnerable"),
    [
        ("requests", "2.32.3"),  # CVE-2024-47081: credentials of .netrc to another host
        ("urllib3", "2.6.2"),  # CVE-2026-21441, CVE-2025-66418: decompression bombs
        ("pymysql", "1.1.0"),  # CVE-2024-36039: SQL injection by keys of a dict
        ("jinja2", "3.1.5"),  # CVE-2025-27516: out of the sandbox
        ("starlette", "0.49.0"),  # CVE-2025-62727: quadratic time for Range
        ("h11", "0.14.0"),  # CVE-2025-43859: lenient chunked encoding
    ],
)
def test_a_vulnerable_version_does_not_satisfy_the_lower_bound(name: str, vulnerable: str) -> None:
    stated = [
        each[name]
        for extra, each in lists().items()
        if name in each and (extra or name not in OF_A_RELEASE)
    ]

    assert stated
    assert [str(each) for each in stated if each.specifier.contains(vulnerable)] == []
