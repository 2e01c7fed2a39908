# SPDX-License-Identifier: Apache-2.0
"""Configuration of Nova and Cinder: real services, and what they drive is fake or a machine."""

from __future__ import annotations

from testcloud.ini import Section, Sections, merged
from testcloud.machines import places
from testcloud.sections import CONTROLLER, account, database, messages, tokens
from testcloud.settings import REGION, VICTIM, Settings


def nova(settings: Settings) -> Sections:
    """nova.conf of the API, the conductor and the scheduler."""
    return merged(
        _nova(settings, CONTROLLER),
        database(settings, "nova"),
        {"api_database": {"connection": settings.database_url("nova_api")}},
    )


def nova_compute(settings: Settings, host: str) -> Sections:
    """nova.conf of one hypervisor: without the databases, which a compute service must not know."""
    own = _libvirt(settings, host) if settings.machines else _fake(host)
    return merged(_nova(settings, host), own)


def _fake(host: str) -> Sections:
    """Of the 800,000 MB that a fake hypervisor says it has, one that may die offers few. So the
    scheduler prefers the others, also for the two more attempts that a server has."""
    return {"DEFAULT": {"reserved_host_memory_mb": 700_000}} if host == VICTIM else {}


def _libvirt(settings: Settings, host: str) -> Sections:
    """Real guests, without KVM."""
    return {
        "DEFAULT": {
            "my_ip": places.management(host),
            "compute_driver": "libvirt.LibvirtDriver",
            "instances_path": str(places.instances(settings, host)),
            "force_config_drive": True,
            "mkisofs_cmd": "genisoimage",
            # Otherwise the old guests would start with their host, beside their successors.
            "resume_guests_state_on_host_boot": False,
            # A server that was deleted while its host was down must not run on there.
            "running_deleted_instance_action": "reap",
            "running_deleted_instance_poll_interval": 5,
            "report_interval": 2,
            # Seconds until a guest that does not end by itself is killed.
            "shutdown_timeout": 10,
            "reserved_host_memory_mb": 0,
            "cpu_allocation_ratio": "16.0",
            "pointer_model": "ps2mouse",
        },
        "libvirt": {
            "virt_type": "qemu",
            "cpu_mode": "none",
            "connection_uri": places.URI,
            "images_type": "qcow2",
            # The disk of the guest's system is lost with the host in any case. For volumes Nova's
            # default stays, no cache: with one, a flush may succeed after a write that Ceph refused
            # (docs/fencing.md).
            "disk_cachemodes": "file=unsafe",
            # QEMU's cache of translated code takes up to 1 GiB otherwise.
            "tb_cache_size": 64,
            "hw_machine_type": "x86_64=pc",
            "rbd_user": "cinder",
            "rbd_secret_uuid": places.CEPH_KEY_ID,
            "inject_partition": -2,
            "device_detach_attempts": 4,
            "device_detach_timeout": 5,
        },
        **_without_sudo(f"{settings.etc / 'nova' / f'nova-{host}.conf'}", "nova_sys_admin"),
    }


def _nova(settings: Settings, host: str) -> Sections:
    data = settings.data / "nova" / host
    return merged(
        messages(settings, "nova", notify=True),
        tokens(settings, "nova"),
        {
            "DEFAULT": {
                "host": host,
                "my_ip": settings.host,
                "state_path": str(data),
                "instances_path": str(data / "instances"),
                "rootwrap_config": str(settings.etc / "nova" / "rootwrap.conf"),
                "compute_driver": "fake.FakeDriverWithoutFakeNodes",
                "allow_resize_to_same_host": True,
                # The fake hypervisor forgets its servers with its process: have them run again.
                "resume_guests_state_on_host_boot": True,
                # Of real hosts, each of which reports every 2 s.
                "service_down_time": 10 if settings.machines else 30,
                "report_interval": 5,
                "update_resources_interval": 20,
                "running_deleted_instance_action": "noop",
                "sync_power_state_interval": -1,
                "vif_plugging_is_fatal": False,
                "vif_plugging_timeout": 0,
            },
            # By default it checks its own answers against schemas: a tenth of the API's time.
            "api": {"auth_strategy": "keystone", "response_validation": "ignore"},
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
            # More than all other weights together, of which each is 1 at most. Two servers that
            # must not share a host, and are scheduled at once, are a failure of the host.
            "filter_scheduler": {
                "ram_weight_multiplier": "10.0",
                "build_failure_weight_multiplier": "0.0",
                # Otherwise a server that was deleted while its host was down keeps its place there
                # for two minutes, and its successor finds no host.
                "track_instance_changes": False,
            },
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
                "my_ip": settings.host,
                "auth_strategy": "keystone",
                "state_path": str(data),
                "api_paste_config": str(folder / "api-paste.ini"),
                "rootwrap_config": str(folder / "rootwrap.conf"),
                "resource_query_filters_file": str(folder / "resource_filters.json"),
                "osapi_volume_workers": 1,
                "enabled_backends": backend(settings),
                "default_volume_type": "__DEFAULT__",
                "glance_api_servers": settings.url("glance"),
                "backup_driver": "",
                "quota_volumes": -1,
                "quota_gigabytes": -1,
                "quota_snapshots": -1,
            },
            backend(settings): _rbd(settings)
            if settings.machines
            else {
                "volume_driver": "testcloud_cinder.clones.Clones",
                "volume_backend_name": "fake",
                "extra_capabilities": '{"multiattach": true}',
            },
            "coordination": {"backend_url": f"file://{data / 'coordination'}"},
            "nova": account(settings, "nova"),
            "service_user": {"send_service_user_token": True, **account(settings, "cinder")},
            **(
                _without_sudo(f"{settings.etc / 'cinder' / 'cinder.conf'}", "cinder_sys_admin")
                if settings.machines
                else {}
            ),
        },
    )


def _without_sudo(file: str, *contexts: str) -> Sections:
    """What has a service that is root already call its helper itself."""
    helper = f"privsep-helper --config-file {file}"
    return {name: {"helper_command": helper} for name in (*contexts, "privsep_osbrick")}


def backend(settings: Settings) -> str:
    """The name of Cinder's one backend."""
    return "rbd" if settings.machines else "fake"


def _rbd(settings: Settings) -> Section:
    return {
        "volume_driver": "cinder.volume.drivers.rbd.RBDDriver",
        "volume_backend_name": backend(settings),
        "rbd_pool": places.POOL,
        "rbd_user": "cinder",
        "rbd_ceph_conf": str(places.ceph_conf(settings)),
        "rbd_secret_uuid": places.CEPH_KEY_ID,
        "rados_connect_timeout": 10,
    }
