# SPDX-License-Identifier: Apache-2.0
"""A web page whose name is rebound to an address of this machine (DNS rebinding), or of another
site, reads nothing. The API: ``test_orders_from_a_web_page.py``; the pages: ``tests/ui``."""

from __future__ import annotations

import pytest
import requests

from mistral_failover.loopback import foreign
from mistral_failover.metrics.server import MetricsServer

OTHER_NAMES = ["evil.example", "127.0.0.1.evil.example:80", "", "127.0.0.1:x", "127.0.0.1:65536"]


@pytest.mark.parametrize("host", [*OTHER_NAMES, "192.0.2.1"])
def test_the_metrics_are_not_read_by_another_name(host: str) -> None:
    with MetricsServer(lambda: {"families": {}}) as server:
        answer = requests.get(server.url, headers={"Host": host}, timeout=60)

    assert (answer.status_code, "failover_up" in answer.text) == (403, False)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost"}, 200),
        ({"Host": "127.0.0.1:1"}, 200),  # a tunnel's other end
        ({"Host": "Metrics.example:9798"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 200),
    ],
)
def test_the_metrics_are_read_by_their_own_names(headers: dict[str, str], status: int) -> None:
    with MetricsServer(lambda: {"families": {}}, names=["metrics.example"]) as server:
        assert requests.get(server.url, headers=headers, timeout=60).status_code == status


@pytest.mark.parametrize("listens", ["0.0.0.0", "::"])  # noqa: S104
def test_what_listens_on_every_address_is_called_by_any_address_but_no_other_name(
    listens: str,
) -> None:
    assert foreign(["192.0.2.1:9798"], [listens]) is None
    assert foreign(["[2001:db8::1]:9798"], [listens]) is None
    assert all(foreign([name], [listens]) == "host" for name in OTHER_NAMES)
    assert foreign(["127.0.0.1", "127.0.0.1"], [listens]) == "host", "two Host headers"
