# SPDX-License-Identifier: Apache-2.0
"""Bodies of alarms as their sources send them; all about server s-a, at eight o'clock."""

from __future__ import annotations

import itertools
from typing import Any

_numbers = itertools.count(1)
ALERT: dict[str, Any] = {
    "status": "firing",
    "labels": {
        "alertname": "InstanceDown",
        "instance_id": "s-a",
        "failover_group": "payments",
        "failover_member": "db_a",
    },
    "annotations": {"summary": "no answer"},
    "startsAt": "2026-11-21T08:00:00.123456789Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "http://prometheus/graph?secret=1",
    "fingerprint": "5ef77f1f8a3ecf8d",
}
WEBHOOK: dict[str, Any] = {
    "version": "4",
    "groupKey": '{}:{alertname="InstanceDown"}',
    "truncatedAlerts": 0,
    "status": "firing",
    "receiver": "failover",
    "groupLabels": {},
    "commonLabels": {},
    "commonAnnotations": {},
    "externalURL": "http://alertmanager",
    "alerts": [ALERT],
}
VERSIONED: dict[str, Any] = {
    "event_type": "instance.update",
    "publisher_id": "nova-compute:cmp1",
    "priority": "INFO",
    "message_id": "m1",
    "timestamp": "2026-11-21 08:00:00.123456",
    "payload": {
        "nova_object.name": "InstanceUpdatePayload",
        "nova_object.namespace": "nova",
        "nova_object.version": "2.0",
        "nova_object.data": {
            "uuid": "s-a",
            "state": "error",
            "power_state": "running",
            "task_state": None,
            "state_update": {
                "nova_object.name": "InstanceStateUpdatePayload",
                "nova_object.data": {
                    "old_state": "active",
                    "state": "error",
                    "old_task_state": None,
                    "new_task_state": None,
                },
            },
        },
    },
}
UNVERSIONED: dict[str, Any] = {
    "event_type": "compute.instance.update",
    "publisher_id": "compute.cmp1",
    "message_id": "m2",
    "timestamp": "2026-11-21 08:00:00.123456",
    "payload": {
        "instance_id": "s-a",
        "state": "error",
        "old_state": "active",
        "old_task_state": None,
        "new_task_state": None,
        "state_description": "",
        "host": "cmp1",
    },
}
MASAKARI: dict[str, Any] = {
    "notification": {
        "type": "VM",
        "hostname": "cmp1",
        "generated_time": "2026-11-21T08:00:00.000000",
        "payload": {
            "event": "LIFECYCLE",
            "instance_uuid": "s-a",
            "vir_domain_event": "STOPPED_FAILED",
        },
    }
}
HOST: dict[str, Any] = {
    "notification": {
        "type": "COMPUTE_HOST",
        "hostname": "cmp1",
        "generated_time": "2026-11-21T08:00:00.000000",
        "payload": {"event": "STOPPED", "cluster_status": "OFFLINE", "host_status": "NORMAL"},
    }
}
SIGNAL: dict[str, Any] = {"group": "payments", "member": "db_a", "id": "w1", "reason": "watchdog"}
AODH: dict[str, Any] = {"alarm_id": "a1", "previous": "ok", "current": "alarm"}
BODIES = {
    "alertmanager": WEBHOOK,
    "nova": VERSIONED,
    "masakari": MASAKARI,
    "aodh": AODH,
    "signal": SIGNAL,
}
EIGHT = 1795248000.0
"""Seconds since the epoch."""


def aodh(message: str | None = "m1", server: str = "s-a", **more: Any) -> dict[str, Any]:
    """An event alarm; without a message, one of a threshold."""
    body = {"alarm_name": "lost", "alarm_id": "a1", "previous": "ok", "current": "alarm"}
    reason: dict[str, Any] = {"type": "threshold", "most_recent": next(_numbers)}
    if message is not None:
        traits = [["instance_id", 1, server]]
        reason = {
            "event": {"message_id": message, "traits": traits, "generated": more.pop("at", "")}
        }
    return {**body, "reason_data": reason, **more}
