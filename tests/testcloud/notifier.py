# SPDX-License-Identifier: Apache-2.0
"""Has Aodh's notifier carry out a ``trust+heat`` action.

Aodh itself asks for it only for alarms about members of a load balancer, which this cloud does not
have. So the notification that its evaluator would send is sent here; trust, notifier, Heat and all
that follows are real.
"""

from __future__ import annotations

import uuid
from typing import Any, Self

import oslo_messaging
from oslo_config import cfg

from testcloud.access import connect
from testcloud.settings import Settings
from testcloud.tenant import Tenant


class Notifier:
    """A context manager: a trust of the tenant's for Aodh, and the way to its notifier."""

    def __init__(self, settings: Settings, tenant: Tenant) -> None:
        self._settings = settings
        self._tenant = tenant
        self._identity = tenant.cloud.identity
        self._trust: Any = None

    def __enter__(self) -> Self:
        session = self._tenant.cloud.session
        aodh = connect(self._settings).identity.find_user("aodh", ignore_missing=False)
        roles = session.auth.get_access(session).role_ids
        self._trust = self._identity.create_trust(
            trustor_user_id=session.get_user_id(),
            trustee_user_id=aodh.id,
            project_id=session.get_project_id(),
            roles=[{"id": role} for role in roles],
            impersonation=True,
        )
        configuration = cfg.ConfigOpts()
        configuration([], project="testcloud")
        transport = oslo_messaging.get_notification_transport(
            configuration, url=self._settings.messages_url
        )
        self._notifier = oslo_messaging.Notifier(
            transport, driver="messagingv2", publisher_id="testcloud", topics=["alarming"]
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self._identity.delete_trust(self._trust)

    def unhealthy(self, stack: str, group: str, server: str) -> None:
        """Notify that a member of an autoscaling group is unhealthy."""
        self._notifier.sample(
            {},
            "alarm.update",
            {
                "actions": [f"trust+heat://{self._trust.id}:delete@"],
                "alarm_id": str(uuid.uuid4()),
                "alarm_name": "member_lost",
                "severity": "low",
                "previous": "ok",
                "current": "alarm",
                "reason": "a member is unhealthy",
                "reason_data": {
                    "type": "loadbalancer_member_health",
                    "stack_id": stack,
                    "asg_id": group,
                    "unhealthy_members": [{"id": server}],
                },
            },
        )
