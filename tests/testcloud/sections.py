# SPDX-License-Identifier: Apache-2.0
"""Sections that the services' files have in common."""

from __future__ import annotations

from testcloud.ini import Section, Sections
from testcloud.settings import REGION, Settings

CONTROLLER = "ctl"
"""The host name of everything that is no hypervisor."""

MEMCACHED_AGAIN = 5
"""Seconds after which memcached is asked again that was away. By default it is 300 in Keystone and
its middleware, and all that time Keystone validates every token of every call anew."""


def account(settings: Settings, user: str, *, project: str | None = "service") -> Section:
    """How a service logs in; without a project where it acts by trusts."""
    section = {
        "auth_type": "password",
        "auth_url": settings.auth_url,
        "username": user,
        "password": settings.secret("service"),
        "user_domain_name": "Default",
        "region_name": REGION,
    }
    if project is not None:
        section |= {"project_name": project, "project_domain_name": "Default"}
    return section


_TYPES = {
    "nova": "compute",
    "cinder": "block-storage",
    "heat": "orchestration",
    "neutron": "network",
    "mistral": "workflowv2",
}


def tokens(settings: Settings, user: str) -> Sections:
    """How a service checks its callers' tokens."""
    return {
        "keystone_authtoken": {
            "www_authenticate_uri": settings.auth_url,
            **account(settings, user),
            "memcached_servers": f"{settings.host}:{settings.port('memcached')}",
            "memcache_pool_dead_retry": MEMCACHED_AGAIN,
            "service_token_roles": "service",
            "service_token_roles_required": True,
            "interface": "internal",
            # Without it, a service refuses the tokens of application credentials with access rules.
            **({"service_type": _TYPES[user]} if user in _TYPES else {}),
        }
    }


def database(settings: Settings, name: str) -> Sections:
    """Where a service keeps what it knows."""
    return {"database": {"connection": settings.database_url(name)}}


def messages(settings: Settings, service: str, *, notify: bool = False) -> Sections:
    """RabbitMQ. `notify`: tell the event pipeline what happens."""
    return {
        "DEFAULT": {"transport_url": settings.messages_url, "host": CONTROLLER},
        "oslo_messaging_rabbit": {
            "rabbit_qos_prefetch_count": 0,
            "heartbeat_in_pthread": False,
            "heartbeat_timeout_threshold": 0,
        },
        "oslo_messaging_notifications": {
            "driver": "messagingv2" if notify else "noop",
            "transport_url": settings.messages_url,
        },
        "oslo_concurrency": {"lock_path": str(settings.data / service / "lock")},
    }
