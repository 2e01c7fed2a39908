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
    know where to go on: it refuses, or begins with the first page, as Neutron does for floating
    IPs. Both ways the list is read once more from there, and a row that is seen again counts once.
    Raises as ``read`` does, also if the service refuses a row that it lists.
    """
    rows: dict[str, Row] = {}
    marker: str | None = None
    refused: set[str] = set()
    while True:
        try:
            body = read({"marker": marker} if marker is not None else {})
        except FOREIGN as error:
            if (
                marker is None
                or marker in refused
                or translate(error, f"list {kind}").http_status not in _NO_MARKER
            ):
                raise
            refused.add(marker)
            marker = None
            continue
        page = body[kind]
        rows.update((str(row["id"]), row) for row in page)
        links = body.get(f"{kind}_links") or ()
        more = page and any(link["rel"] == "next" for link in links)
        if not more or (most is not None and len(rows) >= most):
            return list(rows.values())
        marker = str(page[-1]["id"])
