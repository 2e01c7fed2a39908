# SPDX-License-Identifier: Apache-2.0
"""What happens to a protected stack of the test cloud, and how it stands then."""

from __future__ import annotations

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
    stack.tenant.guests.fault("server", server, "revive")


def stands_on(stack: ProtectedStack, member: str) -> None:
    """Assert that volume, applications and stack are where they belong."""
    server = stack.servers()[member]
    assert stack.tenant.holders(stack.volume()) == [server]
    assert [m for m, running in stack.applications().items() if running] == [member]
    assert stack.tenant.outputs(stack.name)["active"] == member


def until_its_alarms_ended(stack: ProtectedStack) -> None:
    """Sweep until no execution of an alarm of the stack runs any more: a broker that was away takes
    along what Mistral was told, a sweep ends what hangs of that, and Heat deletes no workflow whose
    executions run."""

    def ended() -> bool:
        rows = stack.tenant.executions("failover.on_alarm")
        running = {row["input"].get("group") for row in rows if row["state"] == "RUNNING"}
        if stack.name in running:
            stack.tenant.run("failover.sweep")
        return stack.name not in running

    until(ended, "the alarms' executions to end", 240)
