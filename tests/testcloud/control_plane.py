# SPDX-License-Identifier: Apache-2.0
"""Configuration of Keystone, Placement, Glance and Neutron."""

from __future__ import annotations

from testcloud.ini import Sections, merged
from testcloud.sections import MEMCACHED_AGAIN, account, database, messages, tokens
from testcloud.settings import Settings

PHYSICAL = "machines"
"""Neutron's name of the one network that the machines' guests are on."""


def keystone(settings: Settings) -> Sections:
    """keystone.conf"""
    data = settings.data / "keystone"
    return merged(
        database(settings, "keystone"),
        {
            # By default it checks its own answers against schemas.
            "api": {"response_validation": "ignore"},
            "token": {"provider": "fernet"},
            "fernet_tokens": {"key_repository": str(data / "fernet-keys")},
            # `keystone-manage bootstrap` makes the keys of receipts if there are none.
            "fernet_receipts": {"key_repository": str(data / "fernet-keys")},
            "credential": {"key_repository": str(data / "credential-keys")},
            "cache": {
                "enabled": True,
                "backend": "dogpile.cache.memcached",
                "memcache_servers": f"{settings.host}:{settings.port('memcached')}",
                "memcache_dead_retry": MEMCACHED_AGAIN,
            },
            "trust": {"allow_redelegation": True},
            # The least that bcrypt knows: the default costs a quarter of a second at each login.
            "identity": {"password_hash_rounds": 4, "domain_config_dir": str(data / "domains")},
        },
    )


def placement(settings: Settings) -> Sections:
    """placement.conf"""
    return merged(
        {
            "placement_database": {"connection": settings.database_url("placement")},
            "api": {"auth_strategy": "keystone"},
        },
        tokens(settings, "placement"),
    )


def glance(settings: Settings) -> Sections:
    """glance-api.conf"""
    data = settings.data / "glance"
    return merged(
        messages(settings, "glance"),
        database(settings, "glance"),
        tokens(settings, "glance"),
        {
            "DEFAULT": {
                "enabled_backends": "fs:file",
                "enabled_import_methods": "[]",
                "bind_host": settings.host,
                "workers": 1,
                "worker_self_reference_url": settings.url("glance"),
            },
            "paste_deploy": {
                "flavor": "keystone",
                "config_file": str(settings.etc / "glance" / "glance-api-paste.ini"),
            },
            "glance_store": {
                "default_backend": "fs",
                "filesystem_store_datadir": str(data / "images"),
            },
            "fs": {"filesystem_store_datadir": str(data / "images")},
            "os_glance_staging_store": {"filesystem_store_datadir": str(data / "staging")},
            "os_glance_tasks_store": {"filesystem_store_datadir": str(data / "tasks")},
        },
    )


def neutron(settings: Settings) -> Sections:
    """neutron.conf: the API alone; ports are bound by `testcloud_neutron`."""
    return merged(
        messages(settings, "neutron"),
        database(settings, "neutron"),
        tokens(settings, "neutron"),
        {
            "DEFAULT": {
                "core_plugin": "ml2",
                "service_plugins": "router",
                "auth_strategy": "keystone",
                "state_path": str(settings.data / "neutron"),
                "api_paste_config": str(settings.etc / "neutron" / "api-paste.ini"),
                "notify_nova_on_port_status_changes": False,
                "notify_nova_on_port_data_changes": False,
                "dhcp_agent_notification": False,
                "api_workers": 1,
                "rpc_workers": 0,
            },
            "nova": account(settings, "nova"),
            "placement": account(settings, "placement"),
            "ml2": {
                "type_drivers": "local,flat",
                "tenant_network_types": "local",
                "mechanism_drivers": "anyhost",
                "extension_drivers": "port_security",
            },
            "ml2_type_flat": {"flat_networks": PHYSICAL},
            "securitygroup": {"enable_security_group": True},
        },
    )
