# SPDX-License-Identifier: Apache-2.0
"""An error that its caller expects. The code says what differs; a class of its own is for further
facts, or for what is caught by its class."""

from __future__ import annotations


class CodedError(Exception):
    """A refusal or failure whose reader can do something about it.

    ``code``: stable, UPPER_SNAKE; what programs compare. ``message``: what happened and why, in one
    sentence. ``remedy``: what to do next, in one sentence. ``str()`` is both, for people.
    """

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(f"{message.rstrip('.')}. {remedy}")
        self.code = code
        self.message = message
        self.remedy = remedy
