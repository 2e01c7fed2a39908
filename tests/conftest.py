# SPDX-License-Identifier: Apache-2.0
"""Which cloud the tests of the contract run against."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --cloud."""
    parser.addoption(
        "--cloud",
        choices=("emulated", "real"),
        default="emulated",
        help="what tests/contract and tests/real_cloud run against; real: the test cloud, up",
    )
