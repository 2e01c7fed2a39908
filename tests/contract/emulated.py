# SPDX-License-Identifier: Apache-2.0
"""The emulated cloud as a rig: what takes seconds elsewhere takes some hundredths here."""

from __future__ import annotations

from collections.abc import Callable

from contract.api import Person
from contract.rig import Rig
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.settings import Settings

_PACE = 0.05
_UNNOTICED = ("delete_server", "detach", "attach", "stop")
LATENCY = {
    "attach": 0.05,
    "detach": 0.05,
    "stop": 0.05,
    "start": 0.1,
    "delete_server": 0.05,
    "load_balancer": 0.05,
    "name_server": 0.05,
    "stack_patch": 0.05,
    "rpc_timeout": 60 * _PACE,  # as on the real cloud, longer than any test waits
}


class EmulatedRig(Rig):
    """A rig on an emulated cloud."""

    settings = Settings(
        http_timeout=5, poll_first=0.005, poll_growth=1.3, poll_ceiling=0.05, repeat_after=1
    )
    victim, steady = "cmp2", "cmp1"
    flavor = "m1.tiny"
    image_id = "tiny"
    flavor_id = "m1.tiny"

    def __init__(self, cloud: EmulatedCloud) -> None:
        people = {name: Person(name, name, name) for name in ("demo", "other", "admin")}
        super().__init__(cloud.auth_url, people)
        self._cloud = cloud

    def kill(self, host: str, unnoticed: Callable[[], None] | None = None) -> None:
        """Nova notices at once here, so only what ends before that reaches the host."""
        client = self._cloud.client
        client.set_latency(**dict.fromkeys(_UNNOTICED, 4.0))
        if unnoticed is not None:
            unnoticed()
        client.fault("host", host, "compute_down")
        client.set_latency(**{name: LATENCY[name] for name in _UNNOTICED})
        self.until(lambda: self.service(host) == "down")

    def revive(self, host: str) -> None:
        self._cloud.client.fault("host", host, "revive")
        self.until(lambda: self.service(host) == "up")

    def boot_nowhere(self, root: str) -> str:
        self._cloud.client.api_fault("boot", "unplaced")
        return self.boot(root=root)

    @property
    def network_id(self) -> str:
        (found,) = self.api().neutron("GET", "/networks?name=net1").json()["networks"]
        return str(found["id"])

    def _hire(self, name: str) -> None:
        self._cloud.client.add_user(name, project="demo")

    def _dismiss(self, name: str) -> None:
        """Each run has a cloud of its own."""

    def forget_tokens(self) -> None:
        """Its services keep nothing."""

    def seconds(self, real: float) -> float:
        return real * _PACE
