# SPDX-License-Identifier: Apache-2.0
"""Which types can be observed, and which of them a group needs to serve."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from mistral_failover.convergence.records import Record
from mistral_failover.groups.observing import ProjectView
from mistral_failover.model.goal import ADDRESSES, ALARM, ATTACHMENT, STACK_TEMPLATE
from mistral_failover.model.observation import Look
from mistral_failover.resources import (
    activation,
    alarm,
    dns_record,
    floating_ip,
    load_balancer_member,
    port,
    stack_parameters,
    stack_template,
    virtual_ip,
    volume_attachment,
)

OBSERVED: Mapping[str, Callable[[ProjectView, Record, str], Look]] = {
    ATTACHMENT: volume_attachment.observe,
    "activation": activation.observe,
    ALARM: alarm.observe,
    "dns_record": dns_record.observe,
    "floating_ip": floating_ip.observe,
    "load_balancer_member": load_balancer_member.observe,
    "port": port.observe,
    STACK_TEMPLATE: stack_template.observe,
    "virtual_ip": virtual_ip.observe,
    "stack_parameters": stack_parameters.observe,
}
"""By type, the read-only check of the cloud for a record; its last argument is the group's name."""
SERVES = frozenset({ATTACHMENT, "activation", *ADDRESSES})
"""Types without which a group does not serve."""
REPAIRED = frozenset({ALARM, "stack_parameters"})
"""Types that may be repaired without asking: an update of them does not touch the service."""


def missing(
    wanted: Collection[str], records: Iterable[Record], lost: Collection[str]
) -> tuple[str, ...]:
    """Return what a group lacks to serve according to its records, a clause each: the names of its
    goal that exist on no member, or only on a lost one."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.type in SERVES and record.name in wanted:
            found.setdefault(record.name, []).append(record)
    return tuple(
        f"{name} does not exist ({', '.join(_state(each) for each in rows)})"
        for name, rows in sorted(found.items())
        if not any(_there(each) and each.member not in lost for each in rows)
    )


def _there(record: Record) -> bool:
    return record.action in ("CREATE", "UPDATE") and record.status == "COMPLETE"


def _state(record: Record) -> str:
    on = f" on {record.member}" if record.member else ""
    if record.action == "INIT":
        return f"not created yet{on}"
    return f"{record.action} {record.status}{on}"
