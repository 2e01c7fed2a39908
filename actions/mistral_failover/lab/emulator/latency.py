# SPDX-License-Identifier: Apache-2.0
"""How long the emulated cloud takes, in seconds, by the name of the operation.

`measured` holds what real services took (a fake hypervisor, one machine); its compute service
handles the attachments of one server one after another, as Nova's does. `parallel` takes the
same times without that queue; `zero` takes none.
"""

from dataclasses import dataclass, field

MEASURED: dict[str, float] = {
    "api": 0.03,
    "boot": 2.0,
    "volume_create": 0.5,
    "volume_delete": 0.3,
    "snapshot_create": 0.6,
    "snapshot_delete": 0.4,
    "attach": 0.5,
    "detach": 0.35,
    "stop": 1.0,
    "start": 1.0,
    "delete_server": 1.0,
    "server_task": 1.0,
    "load_balancer": 1.0,
    "name_server": 4.0,
    "stack_create": 7.0,
    "stack_patch": 2.0,
    "stack_delete": 1.0,
    "stack_nested": 2.0,
    "mark_unhealthy": 0.05,
    "rpc_timeout": 60.0,
    "command_start": 0.5,
    "command_stop": 0.4,
    "command_status": 0.05,
    "command_check": 0.05,
}
PROFILES = ("zero", "measured", "parallel")


@dataclass
class Latency:
    """The times of a profile; `serial` says that a server's attachments queue."""

    seconds: dict[str, float]
    serial: bool
    profile: str
    overrides: dict[str, float] = field(default_factory=dict)

    def of(self, name: str) -> float:
        """Seconds for the operation `name`."""
        return self.overrides.get(name, self.seconds[name])

    def override(self, values: dict[str, float]) -> None:
        """Sets single times.

        :raises ValueError: an unknown name or a negative time.
        """
        for name, value in values.items():
            if name not in self.seconds:
                known = ", ".join(sorted(self.seconds))
                raise ValueError(f"unknown latency {name!r}; known: {known}")
            if not value >= 0:
                raise ValueError(f"latency {name} must be 0 or more seconds, not {value}")
        self.overrides.update({name: float(value) for name, value in values.items()})

    def all(self) -> dict[str, float]:
        """Every time in effect."""
        return {**self.seconds, **self.overrides}


def profile(name: str) -> Latency:
    """The latency profile `name`.

    :raises ValueError: there is no such profile.
    """
    if name not in PROFILES:
        raise ValueError(f"unknown latency profile {name!r}; known: {', '.join(PROFILES)}")
    seconds = dict.fromkeys(MEASURED, 0.0) if name == "zero" else dict(MEASURED)
    return Latency(seconds, serial=name == "measured", profile=name)
