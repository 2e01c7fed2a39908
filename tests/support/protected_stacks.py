# SPDX-License-Identifier: Apache-2.0
"""What happens to a protected stack of the test cloud, and how it stands then."""

from __future__ import annotations

import json
from typing import Any

from testcloud.tenant import ProtectedStack, Tenant, until


def dies(stack: ProtectedStack, operator: Tenant, member: str) -> None:
    """The member's guest crashes, and Nova says so."""
    server = stack.servers()[member]
    stack.tenant.guests.fault("server", server, "crash")
    operator.cloud.compute.reset_server_state(server, "error")


def is_repaired(stack: ProtectedStack, operator: Tenant, member: str) -> None:
    """The member's server runs again, and somebody vouches for it."""
    runs_again(stack, operator, member)
    done = stack.tenant.run(
        "failover.failover", group=stack.name, lost=[], recovered=[member], because="repaired"
    )
    assert done["state"] == "SUCCESS", done["output"]


def runs_again(stack: ProtectedStack, operator: Tenant, member: str) -> None:
    """The member's server runs again."""
    server = stack.servers()[member]
    compute = operator.cloud.compute
    if compute.get_server(server).status == "ERROR":
        compute.reset_server_state(server, "active")
    if compute.get_server(server).status == "SHUTOFF":
        compute.start_server(server)
    until(lambda: compute.get_server(server).status == "ACTIVE", f"{member} to be up", 120)
    guest = stack.tenant.guests.guests()[server]
    if not (guest["running"] and guest["condition"] == "healthy"):
        stack.tenant.guests.fault("server", server, "revive")


def stands_on(stack: ProtectedStack, member: str) -> None:
    """Assert that volume, applications and stack are where they belong."""
    server = stack.servers()[member]
    assert stack.tenant.holders(stack.volume()) == [server]
    assert [m for m, running in stack.applications().items() if running] == [member]
    assert stack.tenant.outputs(stack.name)["active"] == member


def holders(stack: ProtectedStack) -> tuple[str, str]:
    """The active member, and the standby."""
    active = stack.wait_until_active()
    (standby,) = set(stack.servers()) - {active}
    return active, standby


def admitted(stack: ProtectedStack) -> list[dict[str, Any]]:
    """The alarms that started something."""
    return [
        incident
        for incident in stack.status()["incidents"]
        if incident["decision"] == "ADMITTED" and "went from" in incident["sentence"]
    ]


def look(stack: ProtectedStack) -> dict[str, Any]:
    """Look at the group once, as each interval does; what the sweep found."""
    done = stack.tenant.run("failover.sweep", group=stack.name)
    assert done["state"] == "SUCCESS", done["output"]
    found: dict[str, Any] = done["output"]["swept"]
    assert found["unable"] == []
    return found


def service(stack: ProtectedStack) -> tuple[str, list[str]]:
    """Whether the group serves, by the last look, and why not."""
    found = stack.status()["service"]
    return found["status"], found["reasons"]


def findings(stack: ProtectedStack, check: str) -> list[dict[str, Any]]:
    """What ``failover doctor`` says about a subject."""
    rows = stack.tenant.action("failover.doctor", group=stack.name)["findings"]
    return [row for row in rows if row["check"] == check]


def ordered(stack: ProtectedStack, verb: str, **inputs: Any) -> dict[str, Any]:
    """Give an order; how its execution ended."""
    return stack.tenant.run(f"failover.{verb}", group=stack.name, **inputs)


def refused(stack: ProtectedStack, verb: str, **inputs: Any) -> dict[str, Any]:
    """Give an order that is refused; the error."""
    done = ordered(stack, verb, **inputs)
    assert done["state"] == "ERROR", done["output"]
    error: dict[str, Any] = done["output"]["error"]
    return error


def until_its_alarms_ended(stack: ProtectedStack) -> None:
    """Sweep until no execution of an alarm of the stack runs any more: a broker that was away takes
    along what Mistral was told, a sweep ends what hangs of that, and Heat deletes no workflow whose
    executions run."""

    def ended() -> bool:
        if under_way := _running(stack):
            stack.tenant.run("failover.sweep")
        return not under_way

    until(ended, "the alarms' executions to end", 240)


def _running(stack: ProtectedStack) -> bool:
    """Whether an execution for the stack runs: of an alarm, or of the stack's own workflows."""
    rows = stack.tenant.mistral("GET", "executions", state="RUNNING")["executions"]
    return any(json.loads(row["input"] or "{}").get("group") == stack.name for row in rows)
