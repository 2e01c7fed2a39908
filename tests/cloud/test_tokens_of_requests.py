# SPDX-License-Identifier: Apache-2.0
"""What tokens become of, and that no error shows one."""

import pytest

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.stacks import stack_map


def test_a_token_is_never_exchanged_for_another(cloud, pair, emulated):
    known = set(emulated.emulation.state.tokens)
    server_state(cloud, pair.a)
    stack_map(cloud, pair.name)
    assert set(emulated.emulation.state.tokens) == known


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
        texts.append(f"{raised.value} {raised.value.__dict__}")
    assert token not in "".join(texts)
