# SPDX-License-Identifier: Apache-2.0
"""The quotas of projects in Nova and Cinder, and what refuses a request beyond them. A flavor has
one core and 512 MiB of RAM."""

from mistral_failover.lab.emulator.state import CloudState

UNLIMITED = -1
COMPUTE = ("instances", "cores", "ram", "key_pairs", "server_groups", "server_group_members")
"""Nova's kinds, as ``openstack quota set`` may name them."""
BLOCK_STORAGE = ("volumes", "gigabytes", "snapshots", "backups", "backup_gigabytes", "groups")
"""Cinder's kinds."""
FLAVOR = {"instances": 1, "cores": 1, "ram": 512}
"""What one server takes."""


def limits(state: CloudState, project_id: str, kinds: tuple[str, ...]) -> dict[str, int]:
    """The quotas of a project: its own, else those of all projects, else none."""
    own = {**state.config["quota"], **state.config.get("quotas", {}).get(project_id, {})}
    return {kind: own.get(kind, UNLIMITED) for kind in kinds}


def used(state: CloudState, project_id: str) -> dict[str, int]:
    """What a project uses of its quotas."""
    servers = sum(each.project_id == project_id for each in state.servers.values())
    volumes = [v.size for v in state.volumes.values() if v.project_id == project_id]
    snapshots = [s.size for s in state.snapshots.values() if s.project_id == project_id]
    return {
        **{kind: servers * each for kind, each in FLAVOR.items()},
        "volumes": len(volumes),
        "snapshots": len(snapshots),
        "gigabytes": sum(volumes) + sum(snapshots),
    }


def no_server(state: CloudState, project_id: str) -> str:
    """Nova's refusal of another server of the project; empty if the quotas allow it."""
    most, now = limits(state, project_id, COMPUTE), used(state, project_id)
    over = sorted(k for k, one in FLAVOR.items() if 0 <= most[k] < now[k] + one)
    if not over:
        return ""
    asked, has, all_of = (", ".join(str(by[kind]) for kind in over) for by in (FLAVOR, now, most))
    named = ", ".join(over)
    return (
        f"Quota exceeded for {named}: Requested {asked}, but already used {has} of {all_of} {named}"
    )


_KINDS = {"volumes": "VolumeLimitExceeded", "snapshots": "SnapshotLimitExceeded"}


def no_volume(state: CloudState, project_id: str, size: int, *, kind: str = "volumes") -> str:
    """Cinder's refusal of a volume of ``size`` GiB of the project, of a snapshot (``kind``), or of
    so many GiB more of one that exists (``kind`` empty); empty if the quotas allow it."""
    most, now = limits(state, project_id, BLOCK_STORAGE), used(state, project_id)
    if kind and 0 <= most[kind] < now[kind] + 1:
        return (
            f"{_KINDS[kind]}: Maximum number of {kind} allowed ({most[kind]}) exceeded for quota "
            f"'{kind}'."
        )
    if 0 <= most["gigabytes"] < now["gigabytes"] + size:
        return (
            "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed "
            f"gigabytes quota. Requested {size}G, quota is {most['gigabytes']}G and "
            f"{now['gigabytes']}G has been consumed."
        )
    return ""
