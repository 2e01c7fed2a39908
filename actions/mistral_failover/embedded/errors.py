# SPDX-License-Identifier: Apache-2.0
"""The one exception of this package."""


class EmbeddedError(Exception):
    """A problem of the embedded Mistral that its user can correct.

    :ivar code: stable, UPPER_SNAKE; what programs compare. :ivar message: what is wrong, in one
    sentence. :ivar remedy: what to do about it, in one sentence.
    """

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(f"{code}: {message} ({remedy})")
        self.code = code
        self.message = message
        self.remedy = remedy
