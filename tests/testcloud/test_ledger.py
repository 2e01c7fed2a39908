# SPDX-License-Identifier: Apache-2.0
"""The record of the writer inside a guest is its console, which others write on, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import ledger
from support.ledger import Acknowledged, Ledger


@pytest.mark.parametrize(
    ("told", "numbers"),
    [
        (b"wrote 7.\r\nwrote 8.\r\n", [7, 8]),
        (b"wrote 77[ 12.5] I/O error, dev vdb\r\n35.\r\nwrote 7736.\r\n", [7736]),
        (b"wr[ 12.5] I/O error, dev vdb\r\note 7735.\r\n", []),
        (b"wrote 7735[ 12.5] I/O error, dev vdb\r\n.\r\n", []),
        (b"35\r\n", []),
        (b"wrote 77", []),
    ],
)
def test_a_line_that_the_kernel_breaks_is_no_row(
    tmp_path: Path, told: bytes, numbers: list[int]
) -> None:
    console = tmp_path / "console.log"
    console.write_bytes(told)

    assert ledger.acknowledged_inside(console) == numbers


def written(*rows: tuple[float, str, str]) -> Ledger:
    """A ledger with a row at each moment, of a member and its guest."""
    made = Ledger({})
    made.acknowledged = [
        Acknowledged(at, member, number, at, guest)
        for number, (at, member, guest) in enumerate(rows, 1)
    ]
    return made


def test_a_member_that_comes_back_takes_a_turn_of_its_own() -> None:
    rows = (1.0, "db_a", "boot 1"), (2.0, "db_a", "boot 1"), (9.0, "db_a", "boot 2")

    assert written(*rows).turns() == ["db_a", "db_a"]
    assert written(*rows, (9.5, "db_a", "boot 1")).turns() == ["db_a"] * 3, "two writers"


def test_what_the_old_guest_acknowledges_after_the_proof_is_late_and_the_new_one_s_is_not() -> None:
    before, late, after = (1.0, "db_a", "boot 1"), (6.0, "db_a", "boot 1"), (9.0, "db_a", "boot 2")

    assert written(before, after).late(5.0, "db_a") == []
    assert [row.at for row in written(before, late, after).late(5.0, "db_a")] == [6.0]
