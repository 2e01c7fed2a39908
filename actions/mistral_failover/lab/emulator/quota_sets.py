# SPDX-License-Identifier: Apache-2.0
"""What ``openstack quota`` asks Nova, Cinder, Neutron and Keystone. Neutron's quotas are shown, and
none is enforced."""

from collections.abc import Mapping
from typing import Any

from starlette.routing import Route

from mistral_failover.lab.emulator import compute, identity, network, quotas, volume
from mistral_failover.lab.emulator.web import Call, Service, endpoint

_NETWORK = ("network", "subnet", "port", "router", "floatingip", "security_group")


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
        found = quotas.limits(call.emulation.state, target, self.kinds)
        if call.query("usage") in ("True", "true"):
            return self._detail(call)
        return {"quota_set": {"id": target, **found}}

    def _detail(self, call: Call) -> Any:
        target, state = self._seen(call), call.emulation.state
        now = quotas.used(state, target)
        return {
            "quota_set": {
                "id": target,
                **{
                    kind: {"limit": limit, "in_use": now.get(kind, 0), "reserved": 0}
                    for kind, limit in quotas.limits(state, target, self.kinds).items()
                },
            }
        }

    def _defaults(self, call: Call) -> Any:
        target = self._seen(call)
        given: Mapping[str, int] = call.emulation.state.config["quota"]
        found = {kind: given.get(kind, quotas.UNLIMITED) for kind in self.kinds}
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
            if not str(value).removeprefix("-").isdigit() or int(value) < quotas.UNLIMITED:
                raise self.service.refused(
                    400, f"Invalid input for field/attribute {kind}. Value: {value}."
                )
        state = call.emulation.state
        own = state.config.get("quotas", {})
        mine = {**own.get(target, {}), **{kind: int(each) for kind, each in numbers.items()}}
        state.config["quotas"] = {**own, target: mine}
        call.emulation.changed()
        return {"quota_set": quotas.limits(state, target, self.kinds)}

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


def _network_quota(call: Call) -> Any:
    """GET /v2.0/quotas/PROJECT: no number is limited."""
    if not call.sees(call.path("target")):
        raise network.refused(404, "The resource could not be found.")
    return {"quota": dict.fromkeys(_NETWORK, quotas.UNLIMITED)}


def _projects(call: Call) -> Any:
    """GET /projects: an administrator's to see; with ``name``, those of that name."""
    if not call.admin:
        raise identity.refused(403, "You are not authorized: identity:list_projects.")
    named = call.query("name")
    found = [
        {"id": each.id, "name": each.name, "domain_id": "default"}
        for each in call.emulation.state.projects.values()
        if named in (None, each.name)
    ]
    return {"projects": found, "links": {}}


_OF_NOVA = QuotaSets(compute.SERVICE, quotas.COMPUTE, "os_compute_api:os-quota-sets")
_OF_CINDER = QuotaSets(
    volume.SERVICE, (*quotas.BLOCK_STORAGE, "per_volume_gigabytes"), "volume_extension:quotas"
)


def routes() -> list[Route]:
    """The routes."""
    path = "/network/v2.0/quotas/{target}"
    return [
        *_OF_NOVA.routes("/compute/v2.1"),
        *_OF_CINDER.routes("/volume/v3"),
        *_OF_CINDER.routes("/volume/v3/{project_id}"),
        endpoint(network.SERVICE, path, _network_quota, "quota_show", ["GET"]),
        endpoint(network.SERVICE, f"{path}/default", _network_quota, "quota_show", ["GET"]),
        endpoint(identity.SERVICE, "/identity/v3/projects", _projects, "projects", ["GET"]),
    ]
