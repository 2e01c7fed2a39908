# SPDX-License-Identifier: Apache-2.0
"""Random changes behind the engine's back: the status tells the truth, and the way out is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import groups, recovery
from mistral_failover.lab.emulator.state import new_id
from support.operators import Operator

pytestmark = [pytest.mark.drills, pytest.mark.timeout(300)]
CONTEXT = ActionContext(SecurityContext(), ExecutionContext())
MEMBERS = ("db_a", "db_b", "db_c")


class Behind:
    """A group, and an operator of the cloud who does not know of it."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.operator = Operator(group.cloud)
        self.servers = {member: group.server(member) for member in MEMBERS}
        shown = group.cloud.resources(group.name)["data_volume"]
        self.volume = str(shown["physical_resource_id"])
        self.gone: set[str] = set()
        self.deleted = False
        self.size = 1
        self.alarms = {
            member: self.operator.make_alarm(f"{member}_lost", group.name, server)
            for member, server in self.servers.items()
        }
        self.watched = {member: member for member in MEMBERS}

    @property
    def holder(self) -> str:
        return str(self.group.status()["roles"]["active"])

    def change(self, what: str, member: str) -> None:
        """Do it, if it can be done to this member."""
        server = self.servers[member]
        if what == "drift":
            self.operator.update_stack(self.group.name, active=member)
        elif what == "template":
            changed = self.group.cloud.template(self.group.name) | {"description": f"by {member}"}
            self.operator.update_template(self.group.name, changed)
        elif what == "unwatch" and member in self.alarms:
            self.operator.delete_alarm(self.alarms.pop(member))
            del self.watched[member]
        elif what == "point" and member in self.alarms:
            self.watched[member] = MEMBERS[MEMBERS.index(member) - 1]
            self.operator.point_alarm(self.alarms[member], self.servers[self.watched[member]])
        elif what == "extend" and not self.deleted:
            self.size += 1
            self.operator.extend(self.volume, self.size)
        elif member in self.gone:
            return
        elif what == "rebuild":
            self.operator.rebuild_server(server)
        elif what == "take" and not self.deleted:
            self.take_away()
            self.operator.attach(self.volume, server)
        elif what == "destroy" and not self.deleted:
            self.take_away()
            self.operator.delete_volume(self.volume)
            self.deleted = True
        elif what == "stop":
            self.operator.stop_server(server)
            self.gone.add(member)
        elif what == "delete":
            self.operator.delete_server(server)
            self.gone.add(member)
        elif what == "detach" and server in self.attached():
            self.take_away()

    def take_away(self) -> None:
        """Detach the volume from the server that has it; what runs there is stopped first."""
        for server in self.attached():
            (name,) = (member for member, own in self.servers.items() if own == server)
            if name not in self.gone:
                (epoch,) = (m["epoch"] for m in self.group.status()["members"] if m["name"] == name)
                said = {"command_id": new_id(), "epoch": epoch}
                self.group.cloud.run_command(server, "stop", **said)
            self.operator.detach(self.volume, server)

    def attached(self) -> set[str]:
        """The servers that have the volume."""
        return {str(row["instance"]) for row in self.operator.attachments(self.volume)}

    def make_whole(self) -> None:
        """What only a person can decide: the group gets its volume back, or another one."""
        if self.deleted:
            self.volume, self.deleted, self.size = self.operator.make_volume(), False, 1
            definition = self.group.document()
            definition["resources"]["data"]["properties"]["volume"] = self.volume
            groups.Define(definition, name=self.group.name).run(CONTEXT)
        elif self.servers[self.holder] not in self.attached():
            self.take_away()

    def can_serve(self) -> bool:
        """Whether the holder of the role runs, has the volume, and runs the application."""
        server = self.servers[self.holder]
        there = self.holder not in self.gone and server in self.attached()
        return there and bool(self.group.cloud.guests()[server]["applications"])

    def look(self) -> dict[str, Any]:
        """The service after a look."""
        recovery.Observe(self.group.name).run(CONTEXT)
        return dict(self.group.status()["service"])

    def told_truly(self) -> dict[str, Any]:
        """Look, and compare with the cloud."""
        seen = self.look()
        assert seen["status"] in ("SERVING", "DEGRADED", "DOWN"), seen
        assert (seen["status"] != "DOWN") == self.can_serve(), seen
        assert set(seen["gone"]) == self.gone & {self.holder}
        if seen["status"] == "SERVING":
            assert self.holder in self.watched.values()
            assert self.gone | {self.holder} != set(MEMBERS)
        return seen


CHANGES = ("stop", "delete", "rebuild", "detach", "take", "extend", "destroy", "drift")
changes = st.lists(
    st.tuples(
        st.sampled_from([*CHANGES, "template", "unwatch", "point"]), st.sampled_from(MEMBERS)
    ),
    min_size=1,
    max_size=4,
)


@settings(
    max_examples=16,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(changes)
def test_the_status_is_true_and_the_way_out_leads_out(
    protect: Callable[..., Any], todo: list[tuple[str, str]]
) -> None:
    group = protect(servers=MEMBERS)
    group.activate()
    behind = Behind(group)
    assert behind.told_truly()["status"] == "SERVING"

    for what, member in todo:
        behind.change(what, member)
        seen = behind.told_truly()
        if (seen["gone"] or behind.deleted) and len(behind.gone) < len(MEMBERS):
            behind.make_whole()
            # What the status names: failover start GROUP [--lost MEMBER], with another volume too.
            order = {"lost": seen["gone"], "definition": "defined"}
            group.run("failover", group=group.name, **order).assert_succeeded()
            assert behind.told_truly()["status"] != "DOWN"
            assert group.cloud.guests()[behind.servers[behind.holder]]["applications"]

    assert group.cloud.violations() == []
