# SPDX-License-Identifier: Apache-2.0
"""A cloud whose endpoints have certificates of the operator's own authority."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from mistral_failover.cloud.certificates import BUNDLES
from mistral_failover.cloud.clients import Cloud, cloud_for
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.lab.emulator.state import stable_hex
from mistral_failover.mistral.client import MistralClient, MistralError
from mistral_failover.settings import Settings
from support import gateway
from support.emulated import Pair, works
from support.scripted_http import scripted_server


@pytest.fixture(autouse=True)
def _without_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BUNDLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def trusted(tmp_path: Path) -> gateway.Authority:
    """The operator's authority."""
    return gateway.authority(tmp_path)


@pytest.fixture
def outside(
    emulated: EmulatedCloud, emulator: EmulatorClient, trusted: gateway.Authority
) -> Iterator[str]:
    """The URL of the cloud's gateway, which alone the catalog names."""
    with gateway.gateway(emulated.url, trusted) as url:
        identity = {"identity": f"{url}/identity/v3"}
        emulator.configure(endpoints=identity | gateway.endpoints(url))
        yield url


@pytest.fixture
def by_token(outside: str, emulator: EmulatorClient) -> Callable[..., Cloud]:
    """Make the cloud of a request through Mistral."""

    def make(settings: Settings | None = None, **more: object) -> Cloud:
        security = SimpleNamespace(
            auth_uri=f"{outside}/identity/v3",
            auth_token=emulator.mint_token(),
            project_id=stable_hex("project", "demo"),
            region_name="RegionOne",
            **more,
        )
        return cloud_for(security, guard=Unguarded(), settings=settings or Settings())

    return make


@pytest.fixture
def by_entry(outside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cloud]:
    """Make the cloud of an entry of clouds.yaml, as a server does."""

    def make(settings: Settings | None = None, **more: object) -> Cloud:
        auth = {
            "auth_url": f"{outside}/identity/v3",
            "username": "demo",
            "password": "demo",
            "project_name": "demo",
            "user_domain_id": "default",
            "project_domain_id": "default",
        }
        file = tmp_path / "clouds.yaml"
        file.write_text(yaml.safe_dump({"clouds": {"own": {"auth": auth, **more}}}))
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        return cloud_for(None, guard=Unguarded(), settings=settings or Settings(cloud="own"))

    return make


def test_the_authority_that_mistral_knows_counts_for_every_service(
    by_token: Callable[..., Cloud], pair: Pair, trusted: gateway.Authority
) -> None:
    works(by_token(auth_cacert=str(trusted.certificate)), pair)


def test_the_authority_of_an_entry_counts_for_every_service(
    by_entry: Callable[..., Cloud], pair: Pair, trusted: gateway.Authority
) -> None:
    works(by_entry(cacert=str(trusted.certificate)), pair)


@pytest.mark.parametrize("name", BUNDLES)
@pytest.mark.parametrize("way", ["by_token", "by_entry"])
def test_the_authority_of_the_environment_counts_for_every_service(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    pair: Pair,
    trusted: gateway.Authority,
    way: str,
    name: str,
) -> None:
    monkeypatch.setenv(name, str(trusted.certificate))
    works(request.getfixturevalue(way)(), pair)


@pytest.mark.parametrize("way", ["by_token", "by_entry"])
def test_the_option_counts_where_the_request_names_no_authority(
    request: pytest.FixtureRequest, pair: Pair, trusted: gateway.Authority, way: str
) -> None:
    settings = Settings(cloud="own", cacert=str(trusted.certificate))
    works(request.getfixturevalue(way)(settings), pair)


@pytest.mark.parametrize("way", ["by_token", "by_entry"])
def test_an_unknown_authority_is_named_with_where_to_put_its_certificate(
    request: pytest.FixtureRequest, way: str
) -> None:
    with pytest.raises(CloudError) as error:
        server_state(request.getfixturevalue(way)(), "any")

    assert error.value.code == "UNREACHABLE"
    assert not error.value.retryable
    assert "certificate of localhost is not trusted" in error.value.message
    assert "cacert" in error.value.remedy


@pytest.mark.parametrize("way", ["by_token", "by_entry"])
def test_a_file_of_certificates_that_cannot_be_read_is_named(
    request: pytest.FixtureRequest, way: str, tmp_path: Path
) -> None:
    missing = tmp_path / "missing.pem"

    with pytest.raises(CloudError) as error:
        request.getfixturevalue(way)(Settings(cloud="own", cacert=str(missing)))

    assert error.value.code == "CONFIG"
    assert str(missing) in error.value.message


@pytest.mark.parametrize("name", BUNDLES)
def test_the_authority_of_the_environment_counts_for_mistral_too(
    trusted: gateway.Authority, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As --mistral-url, and as an entry of clouds.yaml whose catalog has Mistral."""
    with (
        scripted_server(lambda _: (200, {}, {"workflows": []})) as server,
        gateway.gateway(server.url, trusted) as url,
    ):
        with pytest.raises(MistralError, match="no TLS connection"):
            MistralClient(f"{url}/v2").request("GET", "workflows")
        monkeypatch.setenv(name, str(trusted.certificate))

        found = MistralClient(f"{url}/v2").request("GET", "workflows")

    assert found == {"workflows": []}
