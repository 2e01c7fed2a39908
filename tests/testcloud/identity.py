# SPDX-License-Identifier: Apache-2.0
"""Projects, users, roles, the catalog, and Heat's domain. Running it again changes nothing."""

from __future__ import annotations

from typing import Any

from testcloud.access import connect
from testcloud.settings import MEMBER_ROLES, PROJECTS, REGION, Settings

SERVICE_USERS = (
    *("placement", "glance", "neutron", "nova", "cinder"),
    *("heat", "mistral", "aodh", "ceilometer", "guests"),
)
ROLES = ("admin", "member", "reader", "service", "heat_stack_owner", "heat_stack_user")
# Name, type, port, path. Clients ask for a volume service by either of two types.
CATALOG = (
    ("placement", "placement", "placement", ""),
    ("glance", "image", "glance", ""),
    ("neutron", "network", "neutron", ""),
    ("nova", "compute", "nova-api", "/v2.1"),
    ("cinder", "block-storage", "cinder-api", "/v3"),
    ("cinderv3", "volumev3", "cinder-api", "/v3/%(tenant_id)s"),
    ("heat", "orchestration", "heat-api", "/v1/%(tenant_id)s"),
    ("heat-cfn", "cloudformation", "heat-api-cfn", "/v1"),
    ("mistral", "workflowv2", "mistral-api", "/v2"),
    ("aodh", "alarming", "aodh-api", ""),
)


def set_up(settings: Settings) -> None:
    """Make everything that is missing."""
    identity = connect(settings).identity
    roles = {role.name: role for role in identity.roles()}
    for name in ROLES:
        roles[name] = roles.get(name) or identity.create_role(name=name)
    projects = _projects(identity)
    users = _users(identity, settings)
    for name in SERVICE_USERS:
        for role in ("admin", "service"):
            identity.assign_project_role_to_user(projects["service"], users[name], roles[role])
    for name in ("admin", *PROJECTS):
        for role in MEMBER_ROLES:
            identity.assign_project_role_to_user(projects[name], users[name], roles[role])
    _catalog(identity, settings)
    _heat_domain(identity, settings, roles["admin"])


def _projects(identity: Any) -> dict[str, Any]:
    found = {p.name: p for p in identity.projects(domain_id="default")}
    for name in ("service", *PROJECTS):
        found[name] = found.get(name) or identity.create_project(name=name, domain_id="default")
    return found


def _users(identity: Any, settings: Settings) -> dict[str, Any]:
    found = {u.name: u for u in identity.users(domain_id="default")}
    for name in (*SERVICE_USERS, *PROJECTS):
        password = settings.secret(name if name in PROJECTS else "service")
        found[name] = found.get(name) or identity.create_user(
            name=name, password=password, domain_id="default"
        )
    return found


def _catalog(identity: Any, settings: Settings) -> None:
    services = {s.type: s for s in identity.services()}
    known = {(e.service_id, e.interface) for e in identity.endpoints()}
    for name, kind, port, path in CATALOG:
        service = services.get(kind) or identity.create_service(name=name, type=kind)
        for interface in ("public", "internal"):
            if (service.id, interface) not in known:
                identity.create_endpoint(
                    service_id=service.id,
                    interface=interface,
                    region_id=REGION,
                    url=settings.url(port) + path,
                )


def _heat_domain(identity: Any, settings: Settings, admin: Any) -> None:
    domain = identity.find_domain("heat") or identity.create_domain(name="heat")
    name = "heat_domain_admin"
    user = next(identity.users(domain_id=domain.id, name=name), None) or identity.create_user(
        name=name, domain_id=domain.id, password=settings.secret("heat_domain")
    )
    identity.assign_domain_role_to_user(domain, user, admin)
