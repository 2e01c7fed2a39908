# SPDX-License-Identifier: Apache-2.0
"""A list that is read in pages while others delete its rows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistral_failover.cloud.clients import all_rows
from mistral_failover.cloud.errors import CloudError


def refused(status: int) -> CloudError:
    return CloudError("X", f"marker not found (HTTP {status})", http_status=status)


class Service:
    """A service with rows, ``size`` in a page. ``refuses``: its answer to a marker that it does not
    know; None if it begins with the first row."""

    def __init__(self, rows: int, size: int, refuses: int | None, full: bool = False) -> None:
        self.rows = [str(number) for number in range(rows)]
        self.size, self.refuses, self.full = size, refuses, full
        self.asked = 0

    def read(self, page: dict[str, str]) -> dict[str, Any]:
        """One page, and whether there is another one. ``full``: that is said of each page that is
        full, as Neutron does."""
        self.asked += 1
        marker = page.get("marker")
        if marker is not None and marker not in self.rows:
            if self.refuses is not None:
                raise refused(self.refuses)
            marker = None
        begin = 0 if marker is None else self.rows.index(marker) + 1
        shown = self.rows[begin : begin + self.size]
        more = len(shown) == self.size if self.full else begin + self.size < len(self.rows)
        links = [{"rel": "next", "href": "http://elsewhere.example/"}] if more else []
        return {"ports": [{"id": row} for row in shown], "ports_links": links}


services = st.builds(
    Service,
    rows=st.integers(0, 12),
    size=st.integers(1, 4),
    refuses=st.sampled_from([404, 400, None]),
    full=st.booleans(),
)


@given(services, st.data())
def test_every_row_that_stays_is_read_once(service: Service, data: st.DataObject) -> None:
    def read(page: dict[str, str]) -> dict[str, Any]:
        answer = service.read(page)
        marker = [row["id"] for row in answer["ports"][-1:]]
        for row in data.draw(st.sampled_from([[], marker, service.rows[:1], service.rows[-2:]])):
            service.rows.remove(row)
        return answer

    found = [row["id"] for row in all_rows("ports", read)]

    assert set(service.rows) <= set(found)
    assert len(found) == len(set(found))


@given(services)
def test_of_a_list_that_nobody_changes_each_page_is_read_once(service: Service) -> None:
    found = [row["id"] for row in all_rows("ports", service.read)]

    assert found == service.rows
    assert service.asked <= len(service.rows) // service.size + 1


@pytest.mark.parametrize(
    ("status", "marked"), [(403, True), (404, False)], ids=["another reason", "a row that it lists"]
)
def test_a_refusal_that_is_not_about_a_deleted_row_is_an_error(status: int, marked: bool) -> None:
    service = Service(3, 1, status)

    def read(page: dict[str, str]) -> dict[str, Any]:
        if page and not marked:
            raise refused(status)
        answer = service.read(page)
        if marked:
            service.rows.remove(answer["ports"][-1]["id"])
        return answer

    with pytest.raises(CloudError, match=str(status)):
        all_rows("ports", read)


def test_a_list_that_does_not_exist_is_an_error() -> None:
    def read(page: dict[str, str]) -> dict[str, Any]:
        raise refused(404)

    with pytest.raises(CloudError, match="404"):
        all_rows("ports", read)


def test_no_more_pages_are_read_than_are_wanted() -> None:
    service = Service(9, 2, None)

    assert len(all_rows("ports", service.read, most=3)) == 4
    assert service.asked == 2
