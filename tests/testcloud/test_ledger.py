# SPDX-License-Identifier: Apache-2.0
"""The record of the writer inside a guest is its console, which others write on, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import ledger


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
