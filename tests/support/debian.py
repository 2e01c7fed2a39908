# SPDX-License-Identifier: Apache-2.0
"""Programs of Debian's packages that tests run: installed if that is possible, else their tests are
skipped."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from functools import partial

import pytest

from support.pages import ROOT
from testcloud.errors import CloudError
from testcloud.packages import install_debian
from testcloud.serving import PLACES


class _Traces:
    """Where the installer leaves its log."""

    run = log = ROOT / "build" / "ui"


def install(packages: Mapping[str, str], why: str, *, also: Iterable[str] = ()) -> bool:
    """Install what is missing; what cannot be had is told. Return whether all is there.

    :param packages: with the program by which each is seen to be there.
    :param why: what needs them.
    :param also: further packages, which are missing.
    """
    try:
        install_debian(packages, _Traces(), partial(print, flush=True), why, also=also)
    except CloudError as error:
        if os.geteuid() == 0:
            print(f"{error}\n{error.remedy}", file=sys.stderr)
        return False
    return True


def program(name: str) -> str:
    """The path of a program; the test is skipped if it is not installed."""
    found = shutil.which(name, path=PLACES)
    if found is None:
        pytest.skip(f"there is no {name}")
    return found
