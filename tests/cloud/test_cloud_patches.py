# SPDX-License-Identifier: Apache-2.0
"""What Heat's refusal of an update may mean."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.stack_updates import patch_parameters
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.settings import Settings


def test_an_update_that_ends_in_a_server_error_may_be_under_another_s_trust() -> None:
    """Heat makes the trust anew when another user updates; a trust may not make one (HTTP 500)."""

    class Stacks:
        def get(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(
                identifier="payments/1",
                stack_status="CREATE_COMPLETE",
                updated_time=None,
                parameters={"active": "db_a"},
            )

        def update(self, *_: Any, **__: Any) -> Any:
            raise CloudError("SERVER_ERROR", "RemoteError (HTTP 500)")

    def wait(probe: Any, **_: Any) -> Any:
        return probe()

    cloud: Any = SimpleNamespace(
        guard=Unguarded(),
        heat=SimpleNamespace(stacks=Stacks()),
        shared=lambda *_: [],
        wait=wait,
        settings=Settings(),
    )

    with pytest.raises(CloudError) as raised:
        patch_parameters(cloud, "payments/1", {"active": "db_b"}, 5)

    assert raised.value.code == "SERVER_ERROR"
    assert "another user updated the stack last" in raised.value.remedy
