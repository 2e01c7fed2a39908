# SPDX-License-Identifier: Apache-2.0
"""Configuration of Heat, Mistral with the package, and the way from notifications to alarms."""

from __future__ import annotations

from testcloud.ini import Section, Sections, merged
from testcloud.machines import fences
from testcloud.sections import account, database, messages, tokens
from testcloud.settings import REGION, Settings


def heat(settings: Settings) -> Sections:
    """heat.conf"""
    folder = settings.etc / "heat"
    signals = settings.url("heat-api-cfn")
    return merged(
        messages(settings, "heat"),
        database(settings, "heat"),
        tokens(settings, "heat"),
        {
            "DEFAULT": {
                "num_engine_workers": 1,
                "convergence_engine": True,
                "auth_encryption_key": settings.secret("heat_key"),
                "stack_user_domain_name": "heat",
                "stack_domain_admin": "heat_domain_admin",
                "stack_domain_admin_password": settings.secret("heat_domain"),
                "deferred_auth_method": "trusts",
                "trusts_delegated_roles": "",
                "region_name_for_services": REGION,
                "heat_metadata_server_url": signals,
                "heat_waitcondition_server_url": f"{signals}/v1/waitcondition",
                "environment_dir": str(folder / "environment.d"),
                "template_dir": str(folder / "templates"),
                "plugin_dirs": str(folder / "plugins"),
            },
            "paste_deploy": {"api_paste_config": str(folder / "api-paste.ini")},
            "trustee": account(settings, "heat", project=None),
            "clients": {"endpoint_type": "publicURL"},
            "clients_keystone": {"auth_uri": settings.url("keystone")},
            # Without a full account here signed alarm URLs are refused.
            "ec2authtoken": {
                **account(settings, "heat"),
                "endpoint_override": settings.url("keystone"),
            },
            "volumes": {"backups_enabled": False},
        },
    )


def mistral(settings: Settings) -> Sections:
    """mistral.conf, with the package's section ``[failover]``."""
    return merged(
        messages(settings, "mistral"),
        database(settings, "mistral"),
        tokens(settings, "mistral"),
        {
            "DEFAULT": {"auth_type": "keystone"},
            "api": {"host": settings.host, "port": settings.port("mistral-api"), "api_workers": 1},
            "pecan": {"auth_enable": True},
            "action_providers": {"denylist": "dynamic"},
            "keystone": {"region_name": REGION},
            "openstack_actions": {"default_region": REGION},
            "cron_trigger": {"run_in_api": False},
            # A test's own services listen on loopback; Mistral calls none there by itself.
            "action_std_http": {"denied_cidrs": ""},
            "event_engine": {
                "event_definitions_cfg_file": str(settings.etc / "mistral" / "events.yaml")
            },
            "failover": {
                "database": settings.database_url("failover"),
                # Whoever uses this cloud makes everything fail at once, and means it.
                "storm_groups": "0",
                # Tests wait for the end of what hangs; nothing here is at work for so long without
                # a lock.
                "hang_after": "60",
                **_guests(settings),
            },
        },
    )


def _guests(settings: Settings) -> Section:
    """How commands reach the guests, and what fences their hosts."""
    if not settings.machines:
        guests = f"{settings.host}:{settings.port('guests')}"
        return {"command_channel": f"emulator+http://{guests}"}
    return {
        "command_channel": settings.commands_url,
        "agent_key_file": str(fences.agent_key(settings)),
        "fence_devices_file": str(fences.devices(settings)),
    }


def aodh(settings: Settings) -> Sections:
    """aodh.conf"""
    return merged(
        messages(settings, "aodh"),
        database(settings, "aodh"),
        tokens(settings, "aodh"),
        {
            # Else an alarm made within 60 s of its project's last event misses the next ones.
            "DEFAULT": {"event_alarm_cache_ttl": 0},
            "api": {"auth_mode": "keystone"},
            "coordination": {"backend_url": f"file://{settings.data / 'aodh' / 'coordination'}"},
            "service_credentials": {**account(settings, "aodh"), "interface": "internalURL"},
            "notifier": {"workers": 1},
            "listener": {"workers": 1},
        },
    )


def ceilometer(settings: Settings) -> Sections:
    """ceilometer.conf: the notification agent alone, from Nova's and Cinder's bus to Aodh's."""
    brought = settings.venv.glob("lib/python3*/site-packages/ceilometer")
    package, folder = next(brought, settings.venv), settings.etc / "ceilometer"
    definitions = package / "pipeline" / "data" / "event_definitions.yaml"
    return merged(
        messages(settings, "ceilometer"),
        {
            "DEFAULT": {
                "rootwrap_config": str(folder / "rootwrap.conf"),
                "pollsters_definitions_dirs": str(folder / "pollsters.d"),
            },
            "notification": {"workers": 1, "messaging_urls": settings.messages_url},
            "event": {"definitions_cfg_file": str(definitions)},
            "meter": {"meter_definitions_dirs": str(package / "data" / "meters.d")},
            "polling": {"pollsters_definitions_dirs": str(folder / "pollsters.d")},
            "service_credentials": account(settings, "ceilometer"),
        },
    )
