# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin for mutation testing: quick tests first, so that most mutants die early."""

from __future__ import annotations

import pytest

SLOW = ("test_leases", "test_any_", "test_every_")  # files, the slowest last


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slow files last."""
    items.sort(
        key=lambda item: next((i for i, name in enumerate(SLOW, 1) if name in item.nodeid), 0)
    )
