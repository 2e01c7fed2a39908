# SPDX-License-Identifier: Apache-2.0
"""The rung ``storage``: Ceph refuses the writes of the member's clients; nothing else is proof."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.cloud import servers, volumes
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import Evidence
from mistral_failover.model.group import parse_group
from mistral_failover.resources.fence import power
from mistral_failover.resources.fence.rung import Examined
from mistral_failover.resources.fence.storage import Storage
from mistral_failover.store import host_fences
from support.emulated import Pair
from support.fencing import PROJECT, Fencing, clouds_of_an_operator, private, since
from support.operators import Operator
from support.storage import STANDBY, SUSPECT, Stored, can_ask, changes, simulate

DAY = 86_400.0
CINDER = "172.31.251.5:0/555"


@pytest.fixture
def stored(fencing: Fencing, pair: Pair, tmp_path: Path) -> Stored:
    """A volume that is attached to the member."""
    volumes.attach(fencing.cloud, pair.volume, pair.a, 10)
    stored = Stored(fencing, pair, tmp_path)
    stored.configure()
    return stored


def test_the_clients_of_the_volume_are_blocked_and_the_map_shows_it(stored: Stored) -> None:
    stored.cluster(SUSPECT)

    evidence = stored.prove()

    assert evidence.proven, evidence.observed
    assert evidence.rung == "storage"
    assert evidence.observed == f"Ceph blocks 1 client of volume {stored.pair.volume}"
    assert stored.state["blocklist"] == [SUSPECT]
    assert stored.state["watchers"][stored.image] == []


OF_OTHER, OF_SYSTEM = "172.31.251.11:0/22", "172.31.251.11:0/33"
"""Clients of the guest's other disks."""


def others(stored: Stored, *, system: bool = False) -> tuple[str, str]:
    """The ids of another volume of the member, which its group does not move, and of the disk that
    Nova made for it; both are in Ceph, the latter only if ``system``."""
    operator = Operator(stored.fencing.emulated.client)
    operator.attach(other := operator.make_volume(), stored.pair.a)
    made = servers.system_disk(stored.pair.a)
    opened = {stored.image: [SUSPECT], f"volumes/volume-{other}": [OF_OTHER]}
    more = {f"images/{made}": [OF_SYSTEM], f"images/{made}.swap": [f"{OF_SYSTEM}4"]}
    simulate(stored.folder, {**opened, **(more if system else {})})
    return other, made


def test_other_disks_of_the_member_are_blocked_too_and_named(stored: Stored) -> None:
    other, made = others(stored, system=True)

    evidence = stored.prove(ways=("evacuate",))

    assert evidence.observed == f"Ceph blocks 1 client of volume {stored.pair.volume}"
    assert set(evidence.disks) == {stored.pair.volume, other, made}
    blocked = [SUSPECT, OF_OTHER, OF_SYSTEM, f"{OF_SYSTEM}4"]
    assert sorted(stored.state["blocklist"]) == sorted(blocked)


def test_the_disk_that_nova_made_counts_only_for_a_server_that_may_be_evacuated(
    stored: Stored,
) -> None:
    other, _ = others(stored, system=True)

    assert set(stored.prove().disks) == {stored.pair.volume, other}
    assert OF_SYSTEM not in stored.state["blocklist"]


def test_a_disk_in_another_storage_is_not_named_and_prevents_nothing(stored: Stored) -> None:
    _, made = others(stored)
    simulate(stored.folder, {stored.image: [SUSPECT]})

    evidence = stored.prove(ways=("evacuate",))

    assert evidence.proven
    assert evidence.disks == (stored.pair.volume,)
    assert made not in str(stored.state["watchers"])


def test_a_disk_that_no_client_has_open_is_not_named(stored: Stored) -> None:
    """A client that comes back later would not be blocked."""
    other, _ = others(stored)
    opened = {stored.image: [SUSPECT], f"volumes/volume-{other}": []}
    simulate(stored.folder, opened)

    assert stored.prove().disks == (stored.pair.volume,)


def test_a_process_that_takes_the_fence_over_names_the_other_disks_as_well(stored: Stored) -> None:
    stored.fencing.begin()
    other, made = others(stored, system=True)

    first, again = (stored.prove(ways=("evacuate",)) for _ in range(2))

    assert set(first.disks) == set(again.disks) == {stored.pair.volume, other, made}


def test_every_ceph_command_gets_a_limit_for_its_connection(stored: Stored) -> None:
    stored.cluster(SUSPECT)
    stored.prove()

    calls = [call for call in stored.state["calls"] if call[0] == "ceph"]
    assert calls
    assert all(call[-1] is not None for call in calls)


def test_the_owner_of_the_lock_is_blocked_though_its_watch_has_ended(stored: Stored) -> None:
    """A client that lost its connection for a while comes back and writes on."""
    stored.cluster(locks=(SUSPECT,))

    assert stored.prove().proven
    assert stored.state["blocklist"] == [SUSPECT]


def test_without_a_client_to_block_nothing_is_proven(stored: Stored) -> None:
    """One that comes back later would not be blocked."""
    stored.cluster()

    evidence = stored.prove()

    assert not evidence.proven
    assert "has volume" in evidence.observed
    assert "open, so the storage can block none" in evidence.observed


CLOCKS = pytest.mark.parametrize("clock_ahead", [-3600.0, 3600.0])
"""The clock of the state store when the failover began, against the present one."""


@CLOCKS
def test_a_process_that_takes_the_fence_over_finds_the_clients_blocked_and_proves_it(
    stored: Stored, clock_ahead: float
) -> None:
    """The first one died before it recorded the proof. An image of a shared volume has no lock that
    would still name its owner."""
    stored.fencing.begin(clock_ahead)
    stored.cluster(SUSPECT)

    assert stored.prove().proven
    evidence = stored.prove()

    assert evidence.proven, evidence.observed
    assert stored.state["blocklist"] == [SUSPECT], "it is there, and was not added again"


@CLOCKS
def test_what_was_blocked_before_the_failover_began_proves_nothing(
    stored: Stored, clock_ahead: float
) -> None:
    """The guest may have been started again, and then another client has the volume."""
    stored.cluster(SUSPECT)
    assert stored.prove().proven

    stored.fencing.begin(clock_ahead)

    assert "so the storage can block none" in stored.prove().observed


def test_a_client_that_was_blocked_before_and_may_write_again_is_blocked_again(
    stored: Stored,
) -> None:
    stored.fencing.begin()
    stored.cluster(SUSPECT)

    assert stored.prove().proven
    stored.cluster(SUSPECT)
    assert stored.prove().proven

    assert stored.state["blocklist"] == [SUSPECT]


@CLOCKS
def test_a_client_that_was_blocked_before_the_failover_and_is_back_is_blocked_for_it(
    stored: Stored, clock_ahead: float
) -> None:
    stored.cluster(SUSPECT)
    assert stored.prove().proven
    stored.fencing.begin(clock_ahead)
    stored.cluster(SUSPECT)

    assert stored.prove().proven
    evidence = stored.prove()

    assert evidence.proven, evidence.observed
    assert stored.state["blocklist"] == [SUSPECT]


def test_a_client_that_comes_back_under_another_address_is_blocked_too(stored: Stored) -> None:
    stored.cluster(SUSPECT, modes=("returns",))

    evidence = stored.prove()

    assert evidence.proven, evidence.observed
    assert stored.state["blocklist"] == [SUSPECT, f"{SUSPECT}7"]


def test_a_service_that_has_the_volume_open_is_not_blocked(stored: Stored) -> None:
    """Cinder may copy it meanwhile."""
    stored.cluster(SUSPECT, CINDER)
    stored.configure(services=["172.31.251.5"])

    evidence = stored.prove()

    assert evidence.proven, evidence.observed
    assert stored.state["blocklist"] == [SUSPECT]
    assert stored.state["watchers"][stored.image] == [CINDER]


def test_a_service_alone_is_no_client_of_the_member(stored: Stored) -> None:
    stored.cluster(CINDER)
    stored.configure(services=["172.31.251.5"])

    assert "open, so the storage can block none" in stored.prove().observed
    assert stored.state["blocklist"] == []


def test_a_client_elsewhere_than_nova_says_is_blocked_too(stored: Stored) -> None:
    """The server was evacuated, and its old guest still runs behind a partition."""
    stored.cluster(SUSPECT, STANDBY)
    stored.configure(addresses={stored.fencing.host: ["172.31.251.11"]})

    assert stored.prove().proven
    assert stored.state["blocklist"] == [SUSPECT, STANDBY]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"addresses": {"cmp1": ["172.31.251.11"]}, "services": ["172.31.251.11"]},
            "is also an address of cmp1",
        ),
        ({"services": ["172.31.251.500"]}, "172.31.251.500 is not an IP address"),
    ],
)
def test_an_address_that_cannot_be_a_service_s_is_refused(
    stored: Stored, caplog: pytest.LogCaptureFixture, options: dict[str, Any], why: str
) -> None:
    stored.cluster(SUSPECT)
    stored.configure(**options)

    assert stored.prove().observed == "the operator's fence devices cannot be used"
    assert why in caplog.text


def test_an_address_counts_however_it_is_written(stored: Stored) -> None:
    """Ceph shows the shortest form."""
    service = "[2001:db8::5]:0/555"
    stored.cluster(SUSPECT, service)
    stored.configure(services=["2001:DB8:0:0::5"])

    assert stored.prove().proven
    assert stored.state["blocklist"] == [SUSPECT]


# -- an entry that is there already


def remaining(stored: Stored, client: str = SUSPECT) -> float:
    """Return the seconds until the entry of a client ends."""
    return float(stored.state["until"][client]) - time.time()


ENTRIES = {
    "it ends in a minute": (60.0, (), ["rm", "add"], ""),
    "it ends in a month": (30 * DAY, (), ["rm", "add"], ""),
    "it lasts": (5 * 365 * DAY, (), [], ""),
    "it cannot be replaced": (60.0, ("sticks",), ["rm", "add"], "ends too soon"),
    "its replacement fails": (60.0, ("adds fail",), ["rm", "add", "add"], "refused"),
}


@pytest.mark.parametrize(("left", "modes", "asked", "unproven"), ENTRIES.values(), ids=ENTRIES)
def test_a_client_on_the_blocklist_is_proven_blocked_only_if_its_entry_outlasts_the_fence(
    stored: Stored, left: float, modes: tuple[str, ...], asked: list[str], unproven: str
) -> None:
    """An operator has blocked it by hand, or librbd has when it broke a lock. Adding it once more
    would not move the end of its entry."""
    stored.cluster(locks=(SUSPECT,), modes=modes, until={SUSPECT: time.time() + left})

    evidence = stored.prove()

    assert evidence.proven is not bool(unproven), evidence.observed
    assert unproven in evidence.observed
    assert changes(stored) == asked
    if not unproven:
        assert remaining(stored) > 365 * DAY
    recorded = stored.fencing.runtime.database.reading(host_fences.all_blocked)
    assert [each.client for each in recorded] == [SUSPECT], "before the entry was touched"


def test_an_entry_that_was_removed_and_not_added_again_is_added_by_the_next_try(
    stored: Stored,
) -> None:
    """The process may die between the two."""
    stored.fencing.begin()
    stored.cluster(locks=(SUSPECT,), modes=("adds fail",), until={SUSPECT: time.time() + 60})
    assert not stored.prove().proven
    assert stored.state["blocklist"] == []

    stored.cluster()

    assert stored.prove().proven
    assert remaining(stored) > 365 * DAY


FAULTS = {
    "hangs": "did not end within",
    "denied": "exit code 13",
    "garbage": "could not be read",
    "stubborn": "contradicted: a client that Ceph blocks still watches a volume",
    "slow list": "did not end within",
}


@pytest.mark.parametrize(("mode", "said"), FAULTS.items())
def test_a_cluster_that_does_not_block_or_does_not_show_it_proves_nothing(
    stored: Stored, caplog: pytest.LogCaptureFixture, mode: str, said: str
) -> None:
    stored.cluster(SUSPECT, modes=(mode,))
    ends = said == "did not end within"
    watches = mode == "stubborn"  # looks again until the time is over

    evidence = stored.prove(limit=3 if ends else 6 if watches else 20)

    assert not evidence.proven
    assert said in evidence.observed
    assert stored.seconds < (6 if ends else 25)
    assert "172.31" not in evidence.observed


def test_a_client_that_is_not_on_the_list_after_it_was_added_proves_nothing(
    stored: Stored,
) -> None:
    stored.cluster(locks=(SUSPECT,), modes=("forgets",))

    assert "missing on the blocklist" in stored.prove().observed


def test_a_volume_that_is_in_none_of_the_operator_s_pools_proves_nothing(stored: Stored) -> None:
    stored.cluster(SUSPECT)
    stored.configure(pools=["images"])

    assert "is in none of the operator's pools" in stored.prove().observed


def test_a_member_without_volumes_or_with_more_than_volumes_is_not_fenced_by_its_storage(
    stored: Stored,
) -> None:
    stored.cluster(SUSPECT)

    assert "no volume of the group is attached" in stored.prove(volumes=()).observed
    assert "address of db_a is on no volume" in stored.prove(beside_volumes=("address",)).observed
    assert stored.state["blocklist"] == []


ADDRESSES = {
    "dns_record": {"zone": "example.org.", "name": "db.example.org.", "ttl": 30},
    "port": {"port": "inside"},
    "floating_ip": {"floating_ip": "entry"},
    "load_balancer_member": {"pool": "entry"},
    "virtual_ip": {"port": "inside"},
}


@pytest.mark.parametrize("type_", ADDRESSES)
def test_the_doctor_names_an_address_that_the_member_would_keep(stored: Stored, type_: str) -> None:
    active = {"get_param": "active"}
    volume = {"type": "volume_attachment", "properties": {"volume": "data", "server": active}}
    address = {"type": type_, "properties": {**ADDRESSES[type_], "server": active}}

    def missing(**resources: Any) -> list[str]:
        group = parse_group(
            {
                "failover_template_version": "2026-11-21",
                "stack": "payments",
                "members": {"servers": ["db_a", "db_b"]},
                "roles": ["active"],
                "resources": resources,
                "fence": ["storage", "confirm"],
            }
        )
        settings = stored.fencing.runtime.settings
        examined = Examined(group, settings, lambda name: False, PROJECT)
        return [found.sentence for found in Storage("storage").missing(group.fence[0], examined)]

    assert missing(data=volume) == []
    assert missing(data=volume, entry=address) == [
        "the rung storage proves nothing for a member that has entry: its guest runs on"
    ]


def test_a_client_with_an_odd_address_is_not_passed_on(stored: Stored) -> None:
    stored.cluster("--help")

    assert "no usable address" in stored.prove().observed
    assert stored.state["blocklist"] == []


@pytest.mark.parametrize("ceph", ["/nowhere/ceph"])
def test_a_missing_program_proves_nothing(stored: Stored, ceph: str) -> None:
    stored.cluster(SUSPECT)
    stored.configure(rbd=ceph)

    assert "rbd is not installed" in stored.prove().observed


def test_a_project_that_is_not_in_the_file_gets_nothing_blocked(stored: Stored) -> None:
    stored.cluster(SUSPECT)

    assert not stored.prove(project="another").proven
    assert stored.state["calls"] == []


@pytest.mark.parametrize(
    ("who", "said"),
    [
        # Its attachments are hidden, so its clients would look like the member's own.
        ("other", "Cinder does not show volume {} to the project"),
        # An administrator is shown the volumes of all projects.
        ("admin", "volume {} belongs to another project"),
    ],
)
def test_a_volume_of_another_project_is_not_blocked(
    stored: Stored, connect: Callable[..., Cloud], who: str, said: str
) -> None:
    stored.cluster(SUSPECT)
    stored.fencing.cloud = connect(who)

    assert stored.prove().observed == said.format(stored.pair.volume)
    assert stored.state["calls"] == []


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_cinder_that_does_not_answer_shows_no_volume(
    stored: Stored, connect: Callable[..., Cloud], status: int
) -> None:
    stored.cluster(SUSPECT)
    stored.fencing.cloud = connect("other")
    stored.fencing.emulated.client.api_fault("volume_show", status=status, times=1)

    with pytest.raises(CloudError) as raised:
        stored.prove()

    assert raised.value.transient
    assert stored.state["calls"] == []


def test_a_cinder_that_does_not_say_whose_a_volume_is_proves_nothing(stored: Stored) -> None:
    stored.cluster(SUSPECT)
    stored.fencing.emulated.client.offer("volume", without=["os-vol-tenant-attr:tenant_id"])

    with pytest.raises(CloudError) as raised:
        stored.prove()

    assert raised.value.code == "NOT_OFFERED"
    assert stored.state["calls"] == []


# -- a volume that Cinder has migrated in use


def test_the_clients_of_a_migrated_volume_are_found_at_its_present_image(stored: Stored) -> None:
    stored.migrated()
    stored.cluster(SUSPECT)

    evidence = stored.prove()

    assert evidence.proven, evidence.observed
    assert evidence.observed == f"Ceph blocks 1 client of volume {stored.pair.volume}"
    assert stored.state["blocklist"] == [SUSPECT]


def test_an_image_that_a_migration_has_left_behind_proves_nothing(stored: Stored) -> None:
    """The guest writes to another one."""
    left = stored.image
    stored.migrated()
    stored.cluster(watchers={left: [STANDBY], stored.image: [SUSPECT]})

    assert stored.prove().proven
    assert stored.state["blocklist"] == [SUSPECT]


@pytest.mark.parametrize("user", ["demo", "nobody"])
def test_an_operator_to_whom_cinder_does_not_show_it_gets_the_image_of_the_volume_s_own_id(
    stored: Stored, user: str
) -> None:
    """Keystone does not know the second one."""
    clouds_of_an_operator(stored.fencing.emulated, stored.folder, user)
    stored.cluster(SUSPECT)
    assert stored.prove().proven

    stored.migrated()
    stored.cluster(SUSPECT)

    assert "is in none of the operator's pools" in stored.prove().observed


def test_without_a_credential_of_an_operator_the_volume_s_own_id_counts(stored: Stored) -> None:
    document = json.loads(stored.fencing.file.read_text("utf-8"))
    del document["cloud"]
    private(stored.fencing.file, json.dumps(document))
    stored.cluster(SUSPECT)

    assert stored.prove().proven


def test_a_cinder_that_does_not_answer_the_operator_is_asked_again_later(stored: Stored) -> None:
    stored.cluster(SUSPECT)
    stored.fencing.emulated.client.api_fault("volume_show", status=503, times=100)

    with pytest.raises(CloudError) as raised:
        stored.prove()

    assert raised.value.transient
    assert stored.state["blocklist"] == []


# -- volumes of several servers


@pytest.fixture
def shared(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> Stored:
    """The volume is attached to the standby too."""
    from mistral_failover.cloud import volume_holders
    from mistral_failover.cloud.volume_holders import VolumeHolder

    both = [VolumeHolder(each, each, "attached") for each in (stored.pair.a, stored.pair.b)]
    monkeypatch.setattr(volume_holders, "holders_of", lambda cloud, volume: both)
    stored.cluster(SUSPECT, STANDBY)
    return stored


def storage_addresses(shared: Stored) -> dict[str, list[str]]:
    """Return the addresses of the hosts of both servers."""
    standby = shared.fencing.emulated.emulation.state.servers[shared.pair.b].host
    return {shared.fencing.host: ["172.31.251.11"], standby: ["172.31.251.12"]}


def test_of_a_shared_volume_only_the_clients_of_the_member_s_host_are_blocked(
    shared: Stored,
) -> None:
    shared.configure(addresses=storage_addresses(shared))

    evidence = shared.prove()

    assert evidence.proven, evidence.observed
    assert shared.state["blocklist"] == [SUSPECT]
    assert shared.state["watchers"][shared.image] == [STANDBY]


@pytest.mark.parametrize("address", ["172.31.251.12", "172.31.251.11"])
def test_a_client_of_a_shared_volume_on_an_unknown_host_may_be_the_member_s(
    shared: Stored, address: str
) -> None:
    """Its host may have another address, or it was evacuated and its old guest still runs."""
    addresses = storage_addresses(shared)
    shared.configure(addresses={host: [a] for host, [a] in addresses.items() if a != address})

    evidence = shared.prove()

    assert not evidence.proven
    assert "storage address" in evidence.observed
    assert shared.state["blocklist"] == []


def test_an_entry_of_others_is_not_replaced_while_other_servers_have_the_volume(
    shared: Stored,
) -> None:
    """They may rely on it, and in the gap the client could write."""
    shared.configure(addresses=storage_addresses(shared))
    until = {SUSPECT: time.time() + 60}
    shared.cluster(STANDBY, locks=(SUSPECT,), until=until)

    evidence = shared.prove()

    assert "is not replaced while others have the volume open" in evidence.observed
    assert shared.state["until"] == until


def test_a_shared_volume_whose_clients_cannot_be_told_apart_proves_nothing(shared: Stored) -> None:
    assert "the storage address of the member's host is not configured" in shared.prove().observed
    assert shared.state["blocklist"] == []


def test_two_servers_of_a_shared_volume_on_one_host_cannot_be_told_apart(shared: Stored) -> None:
    shared.configure(addresses={shared.fencing.host: ["172.31.251.11"]})
    shared.fencing.emulated.emulation.state.servers[shared.pair.b].host = shared.fencing.host

    assert "attached to another server on the same host" in shared.prove().observed
    assert shared.state["blocklist"] == []


# -- a host that is reported off


def power_off(
    stored: Stored,
    board: str = "works",
    services: Sequence[str] = (),
    *,
    asks: bool = False,
    dies_after: float = 0.0,
    **more: Any,
) -> Evidence:
    """Have the board switch the host off, with the cluster known. ``asks``: its clients can be
    asked whether they are alive. ``dies_after``: seconds until Nova counts the host as down."""
    device = stored.fencing.device(stored.fencing.machines.board(board))
    stored.configure(levels=[[device]], **({"services": list(services)} if services else {}))
    if asks:
        can_ask(stored.folder)
    dies = threading.Timer(dies_after, stored.fencing.dies)
    dies.start()
    if not dies_after:
        dies.join()
    try:
        return stored.fencing.prove(**{"volumes": (stored.pair.volume,), **more})
    finally:
        dies.join()


def notifications(stored: Stored) -> list[int]:
    """Return for how many milliseconds the clients were asked, each time."""
    return [call[3] for call in stored.state["calls"] if call[:2] == ["rados", "notify"]]


def test_a_client_that_still_watches_contradicts_a_board_that_reports_the_host_off(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power, "WATCH", 0.5)
    stored.cluster(SUSPECT)

    evidence = power_off(stored)

    assert not evidence.proven
    assert "contradicted: a client still has volume" in evidence.observed
    assert SUSPECT not in evidence.observed
    assert not stored.fencing.forced_down()


@pytest.mark.parametrize(
    ("watching", "modes", "services"),
    [((), (), []), ((CINDER,), (), ["172.31.251.5"]), ((SUSPECT,), ("denied",), [])],
    ids=["the clients are gone", "only a service is left", "the cluster cannot be asked"],
)
def test_the_board_is_not_contradicted_where(
    stored: Stored, watching: tuple[str, ...], modes: tuple[str, ...], services: list[str]
) -> None:
    stored.cluster(*watching, modes=modes)

    assert power_off(stored, services=services).proven


def test_a_client_that_does_not_answer_contradicts_nothing_though_ceph_still_shows_it(
    stored: Stored,
) -> None:
    """It died with the host; Ceph shows it for half a minute."""
    stored.cluster(SUSPECT, modes=("deaf",))

    evidence = power_off(stored, asks=True)

    assert evidence.proven, evidence.observed
    assert stored.state["watchers"][stored.image] == [SUSPECT]
    assert notifications(stored) == [3000]
    assert stored.fencing.seconds < 20


@pytest.mark.parametrize(
    ("watching", "modes"),
    [
        ((SUSPECT,), ()),
        ((SUSPECT,), ("deaf once",)),
        ((SUSPECT, STANDBY), ("deaf",)),
        ((SUSPECT,), ("no notifications",)),
    ],
    ids=["it answers", "it answers later", "one of several does not", "it cannot be asked"],
)
def test_a_client_contradicts_the_board_as_long_as_ceph_shows_it_where(
    stored: Stored,
    monkeypatch: pytest.MonkeyPatch,
    watching: tuple[str, ...],
    modes: tuple[str, ...],
) -> None:
    monkeypatch.setattr(power, "WATCH", 2.0)
    stored.cluster(*watching, modes=modes)
    later = 2 if "deaf once" in modes else 0  # it was deaf while the rung waited for Nova

    evidence = power_off(stored, board="lies", asks=True, dies_after=later)

    assert not evidence.proven
    assert "contradicted: a client still has volume" in evidence.observed
    assert "secret" not in evidence.observed


def test_a_client_that_was_silent_while_nova_counted_the_host_as_up_is_asked_once_more(
    stored: Stored,
) -> None:
    """For a second: one that came back would answer at once."""
    stored.cluster(SUSPECT, modes=("deaf",))

    evidence = power_off(stored, asks=True, dies_after=2)

    assert evidence.proven, evidence.observed
    assert notifications(stored) == [3000, 1000]


def test_a_client_of_a_migrated_volume_contradicts_the_board(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power, "WATCH", 0.5)
    stored.migrated()
    stored.cluster(SUSPECT)

    assert "contradicted: a client still has volume" in power_off(stored).observed


def test_a_client_that_watches_until_the_time_is_over_contradicts(stored: Stored) -> None:
    stored.cluster(SUSPECT)

    evidence = power_off(stored, board="lies", limit=3)

    assert not evidence.proven
    assert not stored.fencing.forced_down()


def test_a_client_that_was_seen_contradicts_though_ceph_cannot_be_asked_again(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power, "WATCH", 2.5)
    stored.cluster(SUSPECT, modes=("denied later",))

    evidence = power_off(stored, board="lies", limit=10)

    assert "contradicted: a client still has volume" in evidence.observed


def test_a_proof_of_others_is_contradicted_by_a_client_of_the_group_s_own_volume(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power, "WATCH", 0.5)
    stored.cluster(SUSPECT)
    before = stored.fencing.now()
    assert power_off(stored, board="lies", volumes=()).proven, "a group without a volume"

    with since(before):
        evidence = stored.fencing.prove(volumes=(stored.pair.volume,))

    assert not evidence.proven
    assert "contradicted: a client still has volume" in evidence.observed


def test_a_proof_of_others_counts_once_the_group_s_own_clients_are_gone(stored: Stored) -> None:
    """Ceph ends the watch of a client that died half a minute later."""
    stored.cluster(SUSPECT)
    before = stored.fencing.now()
    assert power_off(stored, volumes=()).proven
    gone = threading.Timer(1.5, stored.cluster)
    gone.start()

    with since(before):
        evidence = stored.fencing.prove(limit=10, volumes=(stored.pair.volume,))

    gone.join()
    assert evidence.proven, evidence.observed
    assert stored.fencing.actions().count("off") == 1
    assert stored.fencing.seconds > 1


def test_a_cinder_that_does_not_answer_after_the_host_is_off_contradicts_nothing(
    stored: Stored,
) -> None:
    """The devices have proven it."""
    stored.cluster(SUSPECT)
    stored.fencing.emulated.client.api_fault("volume_attachment_list", status=503, times=100)

    assert power_off(stored).proven
