# SPDX-License-Identifier: Apache-2.0
"""Configuration of Nova and Cinder: real services, a fake hypervisor, a fake volume backend."""

from __future__ import annotations

from testcloud.ini import Sections, merged
from testcloud.sections import CONTROLLER, account, database, messages, tokens
from testcloud.settings import HOST, REGION, Settings


def nova(settings: Settings) -> Sections:
    """nova.conf of the API, the conductor and the scheduler."""
    return merged(
        _nova(settings, CONTROLLER),
        database(settings, "nova"),
        {"api_database": {"connection": settings.database_url("nova_api")}},
    )


def nova_compute(settings: Settings, host: str) -> Sections:
    """nova.conf of one hypervisor: without the databases, which a compute service must not know."""
    return _nova(settings, host)


def _nova(settings: Settings, host: str) -> Sections:
    data = settings.data / "nova" / host
    return merged(
        messages(settings, "nova", notify=True),
        tokens(settings, "nova"),
        {
            "DEFAULT": {
                "host": host,
                "my_ip": HOST,
                "state_path": str(data),
                "instances_path": str(data / "instances"),
                "rootwrap_config": str(settings.etc / "nova" / "rootwrap.conf"),
                "compute_driver": "fake.FakeDriverWithoutFakeNodes",
                "allow_resize_to_same_host": True,
                # The fake hypervisor forgets its servers with its process: have them run again.
                "resume_guests_state_on_host_boot": True,
                "service_down_time": 30,
                "report_interval": 5,
                "update_resources_interval": 20,
                "running_deleted_instance_action": "noop",
                "sync_power_state_interval": -1,
                "vif_plugging_is_fatal": False,
                "vif_plugging_timeout": 0,
            },
            "api": {"auth_strategy": "keystone"},
            "placement": account(settings, "placement"),
            "glance": {"api_servers": settings.url("glance")},
            "cinder": {
                "catalog_info": "volumev3::publicURL",
                "os_region_name": REGION,
                **account(settings, "nova"),
            },
            "neutron": {
                **account(settings, "nova"),
                "endpoint_override": settings.url("neutron"),
                "http_retries": 0,
            },
            "service_user": {"send_service_user_token": True, **account(settings, "nova")},
            "compute": {"provider_config_location": str(data / "providers")},
            "conductor": {"workers": 1},
            "scheduler": {"workers": 1, "discover_hosts_in_cells_interval": 30},
            "vnc": {"enabled": False},
            "quota": {"driver": "nova.quota.NoopQuotaDriver"},
            "notifications": {"notify_on_state_change": "vm_and_task_state"},
        },
    )


def cinder(settings: Settings) -> Sections:
    """cinder.conf"""
    folder, data = settings.etc / "cinder", settings.data / "cinder"
    return merged(
        messages(settings, "cinder", notify=True),
        database(settings, "cinder"),
        tokens(settings, "cinder"),
        {
            "DEFAULT": {
                "my_ip": HOST,
                "auth_strategy": "keystone",
                "state_path": str(data),
                "api_paste_config": str(folder / "api-paste.ini"),
                "rootwrap_config": str(folder / "rootwrap.conf"),
                "resource_query_filters_file": str(folder / "resource_filters.json"),
                "osapi_volume_workers": 1,
                "enabled_backends": "fake",
                "default_volume_type": "__DEFAULT__",
                "glance_api_servers": settings.url("glance"),
                "backup_driver": "",
                "quota_volumes": -1,
                "quota_gigabytes": -1,
                "quota_snapshots": -1,
            },
            "fake": {
                "volume_driver": "cinder.tests.fake_driver.FakeLoggingVolumeDriver",
                "volume_backend_name": "fake",
                "extra_capabilities": '{"multiattach": true}',
            },
            "coordination": {"backend_url": f"file://{data / 'coordination'}"},
            "nova": account(settings, "nova"),
            "service_user": {"send_service_user_token": True, **account(settings, "cinder")},
        },
    )
