# SPDX-License-Identifier: Apache-2.0
"""Answers of services, read within limits whichever client library reads them."""

from __future__ import annotations

from typing import Any

import requests

from mistral_failover.model.documents import MAX_JSON_BYTES, load_json
from mistral_failover.model.errors import InvalidDocument

_PIECE = 64 * 1024


class Answer(requests.Response):
    """An answer whose JSON is read by `load_json`."""

    def json(self, **_: Any) -> Any:
        """Return the body. Raises `requests.JSONDecodeError` if it is no JSON, or breaks a
        limit."""
        try:
            return load_json(self.content, "answer")
        except InvalidDocument as error:
            raise requests.JSONDecodeError(error.message, "", 0) from None


def bounded(answer: requests.Response) -> requests.Response:
    """Read an answer to its end, and make it an `Answer`.

    Raises `requests.RequestException`, also if it is longer than `MAX_JSON_BYTES`; a short one may
    be long when it is unpacked.
    """
    answer.__class__ = Answer
    if answer._content is False:  # it was not read yet
        body = bytearray()
        for piece in answer.iter_content(_PIECE):
            body += piece
            if len(body) > MAX_JSON_BYTES:
                answer.close()
                raise requests.exceptions.ContentDecodingError(
                    f"the answer is longer than {MAX_JSON_BYTES // 1024**2} MiB"
                )
        answer._content = bytes(body)
    return answer
