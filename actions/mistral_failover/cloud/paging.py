# SPDX-License-Identifier: Apache-2.0
"""Lists that a service answers in pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from mistral_failover.cloud.errors import FOREIGN, translate

Row = Mapping[str, Any]
# Neutron and Cinder say 404 of a marker that they do not know, Nova says 400.
_NO_MARKER = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)


def all_rows(
    kind: str, read: Callable[[dict[str, str]], Mapping[str, Any]], most: int | None = None
) -> list[Row]:
    """Return the rows of a list (``servers``, ``volumes``, ``ports``), or at least the first
    ``most``, page by page.

    ``read`` gets the parameters of a page (``marker``) and returns the body of the answer. A page
    begins after the last row of the one before it: by that row's id, not by the service's link,
    which may lead elsewhere behind a proxy. If that row was deleted meanwhile, the service does not
    know where to go on; then the page begins after the row before it. Raises as ``read`` does.
    """
    rows: list[Row] = []
    last: str | None = None  # the row that ended the list, unless it was deleted
    while True:
        try:
            body = read({"marker": str(rows[-1]["id"])} if rows else {})
        except FOREIGN as error:
            if not rows or translate(error, f"list {kind}").http_status not in _NO_MARKER:
                raise
            rows.pop()
            continue
        if not body[kind] and rows and rows[-1]["id"] != last:
            # Either this is the end, or the service answers so where it does not know the marker,
            # as Neutron does for floating IPs. At the end, the row before it leads here again.
            last = rows.pop()["id"]
            continue
        rows += body[kind]
        links = body.get(f"{kind}_links") or ()
        more = body[kind] and any(link["rel"] == "next" for link in links)
        if not more or (most is not None and len(rows) >= most):
            return rows
