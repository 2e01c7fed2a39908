# SPDX-License-Identifier: Apache-2.0
"""A real proxy between this machine and the cloud, and a real gateway before the cloud's
services."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from keystoneauth1.adapter import Adapter

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.transport import GuardedSession, Unguarded
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import EmulatedCloud
from support import gateway
from support.emulated import Pair, works
from support.proxies import nginx, tinyproxy

NAMES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


@pytest.fixture(autouse=True)
def _no_proxy_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> gateway.Authority:
    """The authority of the cloud's certificates."""
    made = gateway.authority(tmp_path)
    monkeypatch.setenv("OS_CACERT", str(made.certificate))
    return made


@pytest.fixture
def fronted(emulated: EmulatedCloud, emulator: EmulatorClient) -> Callable[[str], None]:
    """Let the catalog name a gateway for every service but Keystone."""

    def place(url: str) -> None:
        emulator.configure(endpoints=gateway.endpoints(url))

    return place


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_every_service_is_asked_through_the_proxy_of_the_environment(
    emulated: EmulatedCloud,
    connect: Callable[..., Cloud],
    fronted: Callable[[str], None],
    pair: Pair,
    trusted: gateway.Authority,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    secure: bool,
) -> None:
    scheme = "https" if secure else "http"
    with (
        gateway.gateway(emulated.url, trusted if secure else None) as outside,
        tinyproxy(tmp_path) as proxy,
    ):
        fronted(outside)
        monkeypatch.setenv(f"{scheme}_proxy", proxy)
        works(connect(), pair)

    said = (tmp_path / "tinyproxy.log").read_text()
    asked = outside.partition("/gw")[0].removeprefix(f"{scheme}://")
    assert asked in said


def test_what_no_proxy_names_is_asked_directly(
    connect: Callable[..., Cloud], pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")

    works(connect(), pair)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("proxy", ["away", "refusing", "without a way there"])
def test_a_proxy_that_does_not_connect_is_named(
    connect: Callable[..., Cloud],
    fronted: Callable[[str], None],
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    scheme: str,
    proxy: str,
) -> None:
    fronted(f"{scheme}://cloud.invalid")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with tinyproxy(tmp_path, *(["BasicAuth user secret"] if proxy == "refusing" else [])) as url:
        used = "http://127.0.0.1:9" if proxy == "away" else url
        monkeypatch.setenv(f"{scheme}_proxy", used.replace("//", "//me:hidden@"))
        with pytest.raises(CloudError) as error:
            server_state(connect(), pair.a)

    said = error.value
    assert said.transient
    assert f"through the proxy {used.removeprefix('http://')}" in said.detail
    assert "hidden" not in f"{said} {vars(said)}"
    if proxy == "refusing":
        assert " 40" in said.message
    if scheme == "https":
        assert "no_proxy" in said.remedy


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_request_that_the_proxy_did_not_pass_on_is_settled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str
) -> None:
    """Nothing of it has left this machine, so that a look shows all that it does."""
    with tinyproxy(tmp_path, "ConnectPort 1") as proxy:
        monkeypatch.setenv(f"{scheme}_proxy", proxy if scheme == "https" else "http://127.0.0.1:9")
        monkeypatch.setenv("no_proxy", "")
        session = GuardedSession(guard=Unguarded(60), timeout=5)
        nova = Adapter(
            session, service_type="compute", endpoint_override=f"{scheme}://cloud.invalid"
        )
        with pytest.raises(CloudError) as error:
            nova.post("/servers", json={}, authenticated=False)

    assert not error.value.unknown
    assert error.value.transient


def test_a_gateway_that_cuts_idle_connections_is_not_noticed(
    emulated: EmulatedCloud,
    connect: Callable[..., Cloud],
    fronted: Callable[[str], None],
    pair: Pair,
    trusted: gateway.Authority,
    tmp_path: Path,
) -> None:
    passed = f"location / {{ proxy_pass {emulated.url}; }}"
    with nginx(tmp_path, [passed], trusted, "keepalive_timeout 300ms;") as url:
        fronted(url)
        cloud = connect()
        works(cloud, pair)
        for _ in range(3):
            time.sleep(0.5)
            assert server_state(cloud, pair.a).status == "ACTIVE"


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_gateway_s_own_page_is_no_answer_of_the_service(
    connect: Callable[..., Cloud],
    fronted: Callable[[str], None],
    pair: Pair,
    tmp_path: Path,
    status: int,
) -> None:
    with nginx(tmp_path, [f"location / {{ return {status}; }}"]) as url:
        fronted(url)
        with pytest.raises(CloudError) as error:
            server_state(connect(), pair.a)

    assert error.value.transient
    assert f"HTTP {status}" in error.value.message
    assert "proxy" not in error.value.message
