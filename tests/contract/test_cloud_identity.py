# SPDX-License-Identifier: Apache-2.0
"""Whose rights a call has: the request's token as it is, or the entry of clouds.yaml."""

import pytest

from mistral_failover.cloud.clients import cloud_for
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import Unguarded
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.stacks import stack_map
from mistral_failover.settings import Settings


def test_a_trust_scoped_token_reaches_every_service(cloud, pair):
    assert server_state(cloud, pair.a).exists
    assert stack_map(cloud, pair.name)
    assert cloud.volumes.volumes.get(pair.volume).status == "available"
    assert cloud.project_id


def test_a_token_is_never_exchanged_for_another(cloud, pair, emulated):
    known = set(emulated.emulation.state.tokens)
    server_state(cloud, pair.a)
    stack_map(cloud, pair.name)
    assert set(emulated.emulation.state.tokens) == known


def test_an_expired_token_is_reported_with_a_remedy(connect):
    with pytest.raises(CloudError) as raised:
        connect(expires_in=-1)
    assert raised.value.code == "TOKEN_EXPIRED"
    assert raised.value.remedy


def test_a_token_that_is_revoked_later_is_reported_by_the_service(cloud, pair, emulated):
    server_state(cloud, pair.a)
    emulated.emulation.state.tokens.clear()
    with pytest.raises(CloudError) as raised:
        stack_map(cloud, pair.name)
    assert raised.value.code == "TOKEN_EXPIRED"


def test_the_project_that_a_request_claims_must_be_its_tokens(connect):
    with pytest.raises(CloudError) as raised:
        connect(project_id="another-project")
    assert raised.value.code == "FORBIDDEN"


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_without_a_token_the_entry_of_clouds_yaml_acts(emulated, pair, tmp_path, monkeypatch):
    path = tmp_path / "clouds.yaml"
    path.write_text(
        f"clouds: {{drill: {{region_name: RegionOne, auth: {{auth_url: '{emulated.auth_url}', "
        "username: demo, password: demo, project_name: demo, user_domain_id: default, "
        "project_domain_id: default}}}\n"
    )
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(path))
    monkeypatch.setattr("openstack.config.loader.CONFIG_FILES", [str(path)])
    cloud = cloud_for(None, guard=Unguarded(), settings=Settings(cloud="drill"))
    assert server_state(cloud, pair.a).exists
    assert stack_map(cloud, pair.name)


def test_no_error_shows_the_token(connect, pair, emulator, emulated):
    cloud = connect()
    token = cloud.session.get_token()
    texts = []
    for operation in ("server_show", "stack_show", "volume_show"):
        emulator.api_fault(operation, status=500, times=50)
    for read in (
        lambda: server_state(cloud, "0b5e9d2c-9a4f-4e0f-9a53-0d5f0c1e7a11"),
        lambda: stack_map(cloud, "nobody"),
        lambda: stack_map(connect("other"), pair.name),
    ):
        with pytest.raises(CloudError) as raised:
            read()
        texts.append(f"{raised.value} {raised.value.as_dict()} {raised.value.__dict__}")
    assert token not in "".join(texts)
