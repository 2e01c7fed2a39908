# SPDX-License-Identifier: Apache-2.0
"""The size of an autoscaling group after an update.

Each update of a stack resizes its groups (heat.engine.resources.aws.autoscaling): to
``desired_capacity``, else to the number of members that have not failed, within ``min_size`` and
``max_size``. If that is fewer than there are, Heat removes failed members first, then the oldest.
So Heat does not replace a member that is marked unhealthy in a group without ``desired_capacity``,
but drops it; in a group that was scaled up it drops others with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.cloud.stacks import StackResource

GROUP = "OS::Heat::AutoScalingGroup"


def refuse_to_shrink(
    cloud: Cloud,
    stack: Any,
    group: str,
    members: Mapping[str, StackResource],
    marking: str | None,
) -> None:
    """Refuse an update that would leave fewer members than there are.

    ``stack``: as Heat shows it; ``members``: the group's, by name; ``marking``: the one that is
    about to be marked unhealthy, or None. If the template computes the size other than by a value
    or a parameter, it is unknown here and passes.

    Raises `CloudError` GROUP_WOULD_SHRINK.
    """
    with translated(f"read the template of stack {stack.identifier}"):
        template = cloud.heat.stacks.template(stack.identifier)
    definition = (template.get("resources") or {}).get(group) or {}
    if definition.get("type") != GROUP:
        return
    there = [name for name, one in members.items() if not one.status.startswith("DELETE")]
    healthy = sum(
        1 for name in there if name != marking and not members[name].status.endswith("FAILED")
    )
    size = size_after(definition.get("properties") or {}, stack.parameters, healthy)
    if size is None or size >= len(there):
        return
    raise CloudError(
        "GROUP_WOULD_SHRINK",
        f"An update of stack {stack.identifier} would leave {size} members of the {len(there)} in "
        f"group {group}. Heat removes failed members first, then the oldest.",
        remedy=f"Set desired_capacity of {group} to {len(there)} in the stack's template and "
        "update the stack; or scale the group down first.",
        retryable=False,
    )


def size_after(
    properties: Mapping[str, Any], parameters: Mapping[str, Any], healthy: int
) -> int | None:
    """Return how many members an update leaves; None if the template alone does not tell.

    ``properties``: the group's in the template; ``parameters``: the stack's, as Heat shows them;
    ``healthy``: how many members have not failed.
    """
    desired = properties.get("desired_capacity")
    wanted = healthy if desired is None else _number(desired, parameters)
    lower = _number(properties.get("min_size"), parameters)
    upper = _number(properties.get("max_size"), parameters)
    if wanted is None or lower is None or upper is None:
        return None
    # Heat treats a desired capacity of nothing as unset.
    return max(lower, min(upper, wanted or healthy))


def _number(value: Any, parameters: Mapping[str, Any]) -> int | None:
    if isinstance(value, Mapping) and set(value) == {"get_param"}:
        name = value["get_param"]
        value = parameters.get(name) if isinstance(name, str) else None
    try:
        return int(float(value))
    except (TypeError, ValueError):
        return None
