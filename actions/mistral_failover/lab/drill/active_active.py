# SPDX-License-Identifier: Apache-2.0
"""The drill of active/active: two members with a role each; one dies, the other takes both roles,
and in the end both roles are back home."""

from __future__ import annotations

import time
from typing import Any

import openstack

from mistral_failover.lab.drill import examples
from mistral_failover.lab.drill.critical import CriticalPathTime
from mistral_failover.lab.drill.run import GROUP, DrillRun
from mistral_failover.lab.drill.scene import CLOUD, SceneError

FAULTS = ("crash", "hang", "app")
"""The scenarios that end with a member that can be repaired."""
_LIMIT = 60.0
_PAUSE = 0.1


class ActiveActiveRun(DrillRun):
    """One drill of a group with two roles, each with its own application on its own volumes."""

    example = examples.TWO

    def _afterwards(self) -> None:
        """Repair the former member, and move the roles home."""
        status = self._failed_over
        lost = list(status["lost"])
        if lost and len(set(status["roles"].values())) > 1:
            self._broken.append(f"a role is not on the remaining member: {status['roles']}")
        for member in lost:
            self._make_well(member)
        if lost or len(set(status["roles"].values())) == 1:
            self._tell(self._elapsed(), "operator", "runs failover failback: every role goes home")
            execution = self._scene.start("failover.failback", group=GROUP, recovered=lost)
            self._watch(execution)
        status = self._scene.action("failover.status", group=GROUP)
        if len(set(status["roles"].values())) == 1 or status["lost"]:
            self._broken.append(f"the roles are not home: {status['roles']}")

    def _make_well(self, member: str) -> None:
        """Do what an operator does about a guest that died: find out why, and boot it."""
        server = self._scene.server(GROUP, member)
        said = f"the operator has checked {member}, and boots its guest"
        self._tell(self._elapsed(), "operator", said)
        with openstack.connect(cloud=CLOUD) as cloud:
            if cloud.compute.get_server(server).status == "SHUTOFF":
                cloud.compute.start_server(server)
        deadline = time.monotonic() + _LIMIT
        while not self._scene.cloud.guests()[server]["answers"]:
            if time.monotonic() > deadline:
                raise SceneError(f"{member} did not boot within {_LIMIT:.0f} s")
            time.sleep(_PAUSE)

    # A drill that was killed over its failback does not see any more how the failover went.

    def _wrong_rung(self) -> list[str]:
        return super()._wrong_rung() if self._failed_over["lost"] else []

    def _times(self, status: dict[str, Any]) -> tuple[CriticalPathTime | None, float | None]:
        return super()._times(status) if status["lost"] else (None, None)

    @staticmethod
    def _active(roles: dict[str, str]) -> str:
        return ", ".join(f"{role} on {member}" for role, member in sorted(roles.items()))
