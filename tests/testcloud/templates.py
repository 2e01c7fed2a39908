# SPDX-License-Identifier: Apache-2.0
"""Templates of stacks: the examples' own, and those that Heat moves by itself, to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from testcloud.settings import ROOT

MEMBER = "member.yaml"
"""The name under which Heat gets :func:`member`, as a file beside the template."""
SERVERS, GROUP = "protected-servers.yaml", "protected-group.yaml"
_SERVER: dict[str, Any] = {
    "type": "OS::Nova::Server",
    "properties": {
        "image": "tiny",
        "flavor": "m1.tiny",
        "networks": [{"network": "net1"}],
        "scheduler_hints": {"group": {"get_resource": "spread"}},
    },
}
_SPREAD = {"type": "OS::Nova::ServerGroup", "properties": {"policies": ["anti-affinity"]}}


def protected(
    example: str,
    *,
    volumes: int = 1,
    fence: list[Any] | None = None,
    also: Mapping[str, Any] | None = None,
    workflow: str | None = None,
    members: Mapping[str, Any] | None = None,
    host: str | None = None,
) -> str:
    """An example's template whose group may fail over at any time; with further volumes, another
    ladder, ``also`` more resources, a chain of its own (``workflow``) and other ``members`` if
    asked. ``host``: the one for db_a, which only an administrator may name."""
    template = yaml.safe_load((ROOT / "examples" / example).read_text("utf-8"))
    text = template["resources"]["protection"]["properties"]["input"]["definition"]["str_replace"]
    if host is not None:
        template["resources"]["db_a"]["properties"]["availability_zone"] = f"nova:{host}"
    group = yaml.safe_load(text["template"])
    group["limits"] = {"cooldown": 0, "per_hour": 1000}
    if fence is not None:
        group["fence"] = fence
    if workflow is not None:
        group["workflow"] = workflow
    if members is not None:
        group["members"] = dict(members)
    for number in range(2, volumes + 1):
        volume = f"data_volume{number}"
        template["resources"][volume] = template["resources"]["data_volume"]
        template["resources"]["protection"]["depends_on"].append(volume)
        attachment = {"volume": volume, "server": {"get_param": "active"}}
        group["resources"][f"data{number}"] = {
            "type": "volume_attachment",
            "properties": attachment,
        }
    group["resources"]["files"]["depends_on"] = [
        name for name, spec in group["resources"].items() if spec["type"] == "volume_attachment"
    ]
    group["resources"] |= also or {}
    text["template"] = _dumped(group)
    return _dumped(template)


def alone(template: dict[str, Any], *, boots_from_a_volume: bool = False) -> None:
    """Leave the standby out of an example's template of two servers. ``boots_from_a_volume``: the
    other one has a system disk and a port of the stack, which outlive it."""
    resources = template["resources"]
    for name in ("db_b", "db_b_lost"):
        del resources[name]
    del template["outputs"]["db_b"], template["parameters"]["agent_key_db_b"]
    resources["protection"]["depends_on"].remove("db_b")
    if not boots_from_a_volume:
        return
    server = resources["db_a"]["properties"]
    resources["system"] = {
        "type": "OS::Cinder::Volume",
        "properties": {"size": 1, "image": server.pop("image")},
    }
    (network,) = server.pop("networks")
    resources["front"] = {"type": "OS::Neutron::Port", "properties": network}
    server["networks"] = [{"port": {"get_resource": "front"}}]
    disk = {"volume_id": {"get_resource": "system"}, "boot_index": 0}
    server["block_device_mapping_v2"] = [{**disk, "delete_on_termination": False}]


def member() -> str:
    """The template of a member of :func:`healed_by_heat`: Aodh looks for the server in a stack of
    its own, whose name in the group it then marks unhealthy."""
    server = {**_SERVER, "properties": {**_SERVER["properties"]}}
    del server["properties"]["scheduler_hints"]
    return _dumped(
        {
            "heat_template_version": "2021-04-16",
            "resources": {"server": server},
            # What the group calls its member's id.
            "outputs": {"OS::stack_id": {"value": {"get_resource": "server"}}},
        }
    )


def moved_by_heat(volumes: int) -> str:
    """Two servers, and volumes whose attachments follow a parameter: what a PATCH moves."""
    active = {"if": ["on_a", {"get_resource": "db_a"}, {"get_resource": "db_b"}]}
    return _dumped(
        _pair(volumes, active)
        | {
            "parameters": {"active": {"type": "string", "default": "db_a"}},
            "conditions": {"on_a": {"equals": [{"get_param": "active"}, "db_a"]}},
        }
    )


def attached_to(member: str, volumes: int = 1) -> str:
    """Two servers, and volumes attached to one of them: what another template moves."""
    return _dumped(_pair(volumes, {"get_resource": member}))


def _pair(volumes: int, server: Any) -> dict[str, Any]:
    resources: dict[str, Any] = {"spread": _SPREAD, "db_a": _SERVER, "db_b": _SERVER}
    members = {name: {"value": {"get_resource": name}} for name in ("db_a", "db_b")}
    return {
        "heat_template_version": "2021-04-16",
        "resources": resources | _attached(volumes, server),
        "outputs": _told(volumes) | members,
    }


def healed_by_heat(volumes: int, size: int = 2) -> str:
    """An autoscaling group of stacks, volumes attached to its first member: what Aodh's action
    trust+heat heals by replacing the member."""
    members = {
        "type": "OS::Heat::AutoScalingGroup",
        "properties": {
            "min_size": size,
            "max_size": size,
            "desired_capacity": size,
            "resource": {"type": MEMBER},
        },
    }
    # Not by yaql: all threads of Heat's engine share its one parser, which fails if two use it.
    first = {"get_attr": ["members", "resource.0"]}
    return _dumped(
        {
            "heat_template_version": "2021-04-16",
            "resources": {"members": members} | _attached(volumes, first),
            "outputs": _told(volumes)
            | {
                "members": {"value": {"get_attr": ["members", "refs"]}},
                "group": {"value": {"get_resource": "members"}},
            },
        }
    )


def _attached(volumes: int, server: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number in range(1, volumes + 1):
        volume = f"volume{number}"
        found[volume] = {"type": "OS::Cinder::Volume", "properties": {"size": 1}}
        found[f"attachment{number}"] = {
            "type": "OS::Cinder::VolumeAttachment",
            "properties": {"volume_id": {"get_resource": volume}, "instance_uuid": server},
        }
    return found


def _told(volumes: int) -> dict[str, Any]:
    ids = [{"get_resource": f"volume{number}"} for number in range(1, volumes + 1)]
    return {"volumes": {"value": ids}}


class _Plain(yaml.SafeDumper):
    """Without anchors, which a group file may not have."""

    def ignore_aliases(self, data: Any) -> bool:
        """Everything is written out."""
        return True


def _dumped(document: Any) -> str:
    return yaml.dump(document, Dumper=_Plain, sort_keys=False)
