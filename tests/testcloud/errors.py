# SPDX-License-Identifier: Apache-2.0
"""The one error of the test cloud."""

from __future__ import annotations


class CloudError(Exception):
    """Something is wrong that a person can put right.

    :ivar code: stable, UPPER_SNAKE.
    :ivar remedy: what to do, as a command where there is one.
    """

    def __init__(self, code: str, message: str, remedy: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.remedy = code, message, remedy
