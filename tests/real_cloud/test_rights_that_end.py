# SPDX-License-Identifier: Apache-2.0
"""The trust of a stack's alarm is deleted in the middle of a failover: nothing is lost or done
twice, and a colleague with rights brings it to its end."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import openstack
import pytest

from mistral_failover.cloud.errors import NO_RIGHTS
from support.protected_stacks import admitted, dies, stands_on
from testcloud.errors import CloudError
from testcloud.settings import Settings
from testcloud.tenant import ProtectedStack, Tenant, until

pytestmark = pytest.mark.timeout(1200)


class Owner(Tenant):
    """A user of the project of ``other``, who owns a stack there."""

    def __init__(self, settings: Settings, operator: Tenant) -> None:
        super().__init__(settings, f"owner-{secrets.token_hex(3)}")
        keystone = operator.cloud.identity
        project = keystone.find_project("other", ignore_missing=False)
        user = keystone.create_user(name=self.user, password=self.user, domain_id="default")
        role = keystone.find_role("member", ignore_missing=False)
        keystone.assign_project_role_to_user(project, user, role)
        self.id = user.id

    @cached_property
    def cloud(self) -> Any:
        """openstacksdk's connection."""
        return openstack.connect(
            auth_url=self.settings.auth_url,
            username=self.user,
            password=self.user,
            project_name="other",
            user_domain_id="default",
            project_domain_id="default",
            region_name="RegionOne",
            compute_default_microversion="2.90",
            load_yaml_config=False,
            load_envvars=False,
        )

    def delete_trusts(self) -> None:
        """Delete every trust that this user gave: Heat's among them."""
        session = self.cloud.session
        path = "/v3/OS-TRUST/trusts"
        where = {"service_type": "identity", "interface": "public"}
        root = session.get_endpoint(**where).removesuffix("/").removesuffix("/v3")
        mine = session.get(f"{root}{path}?trustor_user_id={self.id}").json()["trusts"]
        assert mine
        for trust in mine:
            session.delete(f"{root}{path}/{trust['id']}")


@pytest.fixture(scope="module")
def owner(where: Settings, operator: Tenant) -> Iterator[Owner]:
    """A user whose trusts are used nowhere else."""
    made = Owner(where, operator)
    yield made
    operator.cloud.identity.delete_user(made.id)


def test_a_failover_whose_trust_is_deleted_is_brought_to_its_end_by_a_colleague(
    owner: Owner,
    other: Tenant,
    operator: Tenant,
    protect: Callable[..., ProtectedStack],
) -> None:
    stack = ProtectedStack(other, protect(tenant=owner).name)
    first = stack.active()
    assert first is not None
    before = stack.status()["traversal"]["id"]
    heard = len(other.guests.audit())

    dies(stack, operator, first)
    until(lambda: stack.status()["traversal"]["id"] != before, "the alarm to start it", 120)
    owner.delete_trusts()
    ended = until(lambda: alarm_of(stack), "the end of the alarm's execution", 240)
    found = stack.status()
    assert (ended["state"], found["status"]) == ("ERROR", "IN_PROGRESS"), (ended, found)
    assert any(f"[{code}]" in found["reason"] for code in NO_RIGHTS), found
    incident = found["incidents"][0]
    assert incident["decision"] == "ADMITTED"

    sweep_until_active(stack, first)

    second = stack.active()
    assert second is not None
    stands_on(stack, second)
    (only,) = admitted(stack)
    assert only["id"] == incident["id"] == stack.status()["incidents"][0]["id"]
    assert first in only["sentence"]
    server = stack.servers()[second]
    events = other.guests.audit(since=heard, kind="command_started")
    ran = Counter(each["id"] for each in events if each["server"] == server)
    assert ran
    assert set(ran.values()) == {1}


def alarm_of(stack: ProtectedStack) -> dict[str, Any] | None:
    """The execution of the stack's alarm, once it has ended."""
    rows = stack.tenant.executions("failover.on_alarm")
    mine = [row for row in rows if row["input"].get("group") == stack.name]
    ended = [row for row in mine if row["state"] in ("SUCCESS", "ERROR")]
    return ended[-1] if ended else None


def sweep_until_active(stack: ProtectedStack, first: str) -> None:
    """Sweep as a colleague would, by hand, until somebody else than the first is active."""
    for _ in range(10):
        stack.tenant.run("failover.sweep", limit=240)
        try:
            stack.wait_until_active(first, limit=15)
        except CloudError:
            continue
        return
    raise AssertionError(stack.status())
