# SPDX-License-Identifier: Apache-2.0
"""The body that Prometheus's Alertmanager posts to a webhook, version 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistral_failover.alarms.alarm import Alarm, AlarmSource, BodyReader, digest
from mistral_failover.model.text import parse_time, plain

_REMEDY = "Pass on the webhook's body as Alertmanager posts it (version 4)."
_SERVER_LABELS = ("instance_id", "server_id", "openstack_instance_id")
_HOST_LABELS = ("host", "hypervisor")
_KEPT = ("status", "labels", "annotations", "startsAt", "endsAt", "fingerprint")


def from_alertmanager(body: Any) -> list[Alarm]:
    """Read the alerts of a notification; it has one or more.

    An alert's fingerprint (of its labels) and the time when it began identify its occurrence:
    repeated notifications of one alert have the same. It names its server by a label
    (``instance_id``, ``server_id`` or ``openstack_instance_id``), or group and member by
    ``failover_group`` and ``failover_member``. If it names neither, the label ``host`` or
    ``hypervisor`` names a compute host that failed. It fires while its status is ``firing``. If the
    notification was cut off at ``max_alerts``, each alarm says so.

    Raises InvalidDocument if the body has another form.
    """
    reader = BodyReader.of(body, _REMEDY)
    if str(body.get("version", "4")) != "4":
        raise reader.refuse("version", "it is not 4")
    alerts = body.get("alerts")
    if not isinstance(alerts, list) or not alerts:
        raise reader.refuse("alerts", "it is not a list of alerts")
    cut = body.get("truncatedAlerts")
    omitted = cut if isinstance(cut, int) and cut > 0 else 0
    return [
        _alert(BodyReader.of(alert, _REMEDY, f"alerts[{number}]"), omitted)
        for number, alert in enumerate(alerts)
    ]


def _alert(reader: BodyReader, omitted: int) -> Alarm:
    status = reader.one_of("status", ("firing", "resolved"))
    labels, begun = reader.inner("labels"), reader.needed("startsAt")
    # Alertmanager gives fingerprints since 0.20; they are digests of the labels.
    fingerprint = reader.text("fingerprint") or digest(labels.body)
    server, group = labels.first(*_SERVER_LABELS), labels.first("failover_group")
    member = labels.first("failover_member")
    name = labels.text("alertname") or "without a name"
    sentence = f"alert {name}, which began at {begun}, is {status}"
    if omitted:
        sentence += f" ({omitted} further alerts were cut off: set max_alerts of its receiver to 0)"
    return Alarm(
        source="alertmanager",
        key=digest(["alertmanager", fingerprint, begun, status]),
        firing=status == "firing",
        unique=True,
        sentence=plain(sentence),
        servers=(server,) if server else (),
        payload=reader.kept(*_KEPT),
        group=group,
        member=member,
        host=None if server or group or member else labels.first(*_HOST_LABELS),
        at=parse_time(begun),
        series=digest(["alertmanager", fingerprint]),
        level=status == "firing",
        over=status == "resolved",
        ended=parse_time(reader.text("endsAt")) if status == "resolved" else None,
    )


def looks_like(body: Mapping[str, Any]) -> bool:
    """Return whether the body has alerts."""
    return "alerts" in body


SOURCE = AlarmSource(
    "alerts",
    looks_like,
    from_alertmanager,
    occasion=lambda payload: str(payload.get("startsAt", "")),
)
