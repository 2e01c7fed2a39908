# SPDX-License-Identifier: Apache-2.0
"""The quotas of projects in Nova and Cinder: ``os-quota-sets``, and what refuses a request beyond
them. Neutron's are shown, and none is enforced. A flavor has one core and 512 MiB of RAM. There
are no snapshots, so their quota is only kept.
"""

from collections.abc import Mapping
from typing import Any

from starlette.routing import Route

from mistral_failover.lab.emulator import network
from mistral_failover.lab.emulator.state import CloudState
from mistral_failover.lab.emulator.web import Call, Service, endpoint

UNLIMITED = -1
COMPUTE = ("instances", "cores", "ram", "key_pairs", "server_groups", "server_group_members")
"""Nova's kinds, as ``openstack quota set`` may name them."""
BLOCK_STORAGE = ("volumes", "gigabytes", "snapshots", "backups", "backup_gigabytes", "groups")
"""Cinder's kinds."""
_BLOCK_STORAGE_MORE = ("per_volume_gigabytes",)
_NETWORK = ("network", "subnet", "port", "router", "floatingip", "security_group")
FLAVOR = {"instances": 1, "cores": 1, "ram": 512}
"""What one server takes."""


def limits(state: CloudState, project_id: str, kinds: tuple[str, ...]) -> dict[str, int]:
    """The quotas of a project: its own, else those of all projects, else none."""
    own = {**state.config["quota"], **state.config.get("quotas", {}).get(project_id, {})}
    return {kind: own.get(kind, UNLIMITED) for kind in kinds}


def used(state: CloudState, project_id: str) -> dict[str, int]:
    """What a project uses of its quotas."""
    servers = sum(each.project_id == project_id for each in state.servers.values())
    sizes = [each.size for each in state.volumes.values() if each.project_id == project_id]
    return {
        **{kind: servers * each for kind, each in FLAVOR.items()},
        "volumes": len(sizes),
        "gigabytes": sum(sizes),
    }


def no_server(state: CloudState, project_id: str) -> str:
    """Nova's refusal of another server of the project; empty if the quotas allow it."""
    most, now = limits(state, project_id, COMPUTE), used(state, project_id)
    over = sorted(k for k, one in FLAVOR.items() if 0 <= most[k] < now[k] + one)
    if not over:
        return ""
    asked, has, all_of = (", ".join(str(by[kind]) for kind in over) for by in (FLAVOR, now, most))
    named = ", ".join(over)
    return (
        f"Quota exceeded for {named}: Requested {asked}, but already used {has} of {all_of} {named}"
    )


def no_volume(state: CloudState, project_id: str, size: int, *, more: int = 1) -> str:
    """Cinder's refusal of a volume of ``size`` GiB of the project, or with no ``more`` volumes of
    so many GiB more; empty if the quotas allow it."""
    most, now = limits(state, project_id, BLOCK_STORAGE), used(state, project_id)
    if more and 0 <= most["volumes"] < now["volumes"] + more:
        return (
            f"VolumeLimitExceeded: Maximum number of volumes allowed ({most['volumes']}) exceeded "
            "for quota 'volumes'."
        )
    if 0 <= most["gigabytes"] < now["gigabytes"] + size:
        return (
            "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed "
            f"gigabytes quota. Requested {size}G, quota is {most['gigabytes']}G and "
            f"{now['gigabytes']}G has been consumed."
        )
    return ""


class QuotaSets:
    """The quota sets of one service: ``kinds``, of which all are shown, and with ``rule`` the
    policy of who may see and change them."""

    def __init__(self, service: Service, kinds: tuple[str, ...], rule: str) -> None:
        self.service, self.kinds, self.rule = service, kinds, rule

    def routes(self, base: str) -> list[Route]:
        """The routes below a path."""
        path = f"{base}/os-quota-sets/{{target}}"
        table = (
            (path, self._show, "quota_show", "GET"),
            (f"{path}/detail", self._detail, "quota_show", "GET"),
            (f"{path}/defaults", self._defaults, "quota_show", "GET"),
            (path, self._set, "quota_set", "PUT"),
            (path, self._unset, "quota_set", "DELETE"),
        )
        return [
            endpoint(self.service, where, handler, name, [method])
            for where, handler, name, method in table
        ]

    def _show(self, call: Call) -> Any:
        target = self._seen(call)
        found = limits(call.emulation.state, target, self.kinds)
        if call.query("usage") in ("True", "true"):
            return self._detail(call)
        return {"quota_set": {"id": target, **found}}

    def _detail(self, call: Call) -> Any:
        target, state = self._seen(call), call.emulation.state
        now = used(state, target)
        return {
            "quota_set": {
                "id": target,
                **{
                    kind: {"limit": limit, "in_use": now.get(kind, 0), "reserved": 0}
                    for kind, limit in limits(state, target, self.kinds).items()
                },
            }
        }

    def _defaults(self, call: Call) -> Any:
        target = self._seen(call)
        given: Mapping[str, int] = call.emulation.state.config["quota"]
        found = {kind: given.get(kind, UNLIMITED) for kind in self.kinds}
        return {"quota_set": {"id": target, **found}}

    def _set(self, call: Call) -> Any:
        target, asked = self._changed(call), call.body.get("quota_set")
        if not isinstance(asked, dict):
            raise self.service.refused(400, "Invalid input for field/attribute quota_set.")
        numbers = {k: v for k, v in asked.items() if k not in ("force", "tenant_id")}
        for kind, value in numbers.items():
            if kind not in self.kinds:
                raise self.service.refused(
                    400, f"Additional properties are not allowed ('{kind}' was unexpected)"
                )
            if not str(value).removeprefix("-").isdigit() or int(value) < UNLIMITED:
                raise self.service.refused(
                    400, f"Invalid input for field/attribute {kind}. Value: {value}."
                )
        state = call.emulation.state
        own = state.config.get("quotas", {})
        mine = {**own.get(target, {}), **{kind: int(each) for kind, each in numbers.items()}}
        state.config["quotas"] = {**own, target: mine}
        call.emulation.changed()
        return {"quota_set": limits(state, target, self.kinds)}

    def _unset(self, call: Call) -> Any:
        target, state = self._changed(call), call.emulation.state
        own = dict(state.config.get("quotas", {}))
        own[target] = {k: v for k, v in own.get(target, {}).items() if k not in self.kinds}
        state.config["quotas"] = own
        call.emulation.changed()
        return 202, None

    def _seen(self, call: Call) -> str:
        target = call.path("target")
        if not call.sees(target):
            raise self.service.refused(
                403, f"Policy doesn't allow {self.rule}:show to be performed."
            )
        return target

    def _changed(self, call: Call) -> str:
        if not call.admin:
            raise self.service.refused(
                403, f"Policy doesn't allow {self.rule}:update to be performed."
            )
        return call.path("target")


def of_compute(service: Service) -> QuotaSets:
    """Nova's."""
    return QuotaSets(service, COMPUTE, "os_compute_api:os-quota-sets")


def of_block_storage(service: Service) -> QuotaSets:
    """Cinder's."""
    kinds = (*BLOCK_STORAGE, *_BLOCK_STORAGE_MORE)
    return QuotaSets(service, kinds, "volume_extension:quotas")


def _network_quota(call: Call) -> Any:
    """GET /v2.0/quotas/PROJECT: no number is limited."""
    if not call.sees(call.path("target")):
        raise network.refused(404, "The resource could not be found.")
    return {"quota": dict.fromkeys(_NETWORK, UNLIMITED)}


def routes() -> list[Route]:
    """Neutron's routes."""
    path = "/network/v2.0/quotas/{target}"
    return [
        endpoint(network.SERVICE, path, _network_quota, "quota_show", ["GET"]),
        endpoint(network.SERVICE, f"{path}/default", _network_quota, "quota_show", ["GET"]),
    ]
