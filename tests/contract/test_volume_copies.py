# SPDX-License-Identifier: Apache-2.0
"""Snapshots of volumes in use, and volumes made from them.

A snapshot of a volume in use needs ``force`` below 3.66; its ``created_at`` is the time of the
request, its ``updated_at`` that at which it was available, in UTC and whole seconds; its volume
cannot be deleted before it; a volume that is made from it has its size, and needs it no more once
it is available.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from contract.rig import Made, Rig
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.volume_copies import (
    copy_of_snapshot,
    delete_copy,
    delete_snapshots,
    refuse_uncopyable,
    take_snapshots,
)
from mistral_failover.cloud.volumes import attach, detach

LIMIT = 120.0
METADATA = {"failover_rehearsal": "a test's"}


@pytest.fixture
def name() -> str:
    return f"failover-rehearsal-{uuid.uuid4()}"


@pytest.fixture
def held(cloud: Cloud, pair: Made) -> Iterator[str]:
    """A volume that is attached to the first server of a pair."""
    attach(cloud, pair.ids["data"], pair.ids["db_a"], LIMIT)
    yield pair.ids["data"]
    detach(cloud, pair.ids["data"], pair.ids["db_a"], LIMIT)


def test_a_volume_in_use_is_copied_once_and_the_copy_is_attached_beside_it(
    cloud: Cloud, rig: Rig, pair: Made, held: str, name: str
) -> None:
    (copyable,) = refuse_uncopyable(cloud, [held])
    taken = take_snapshots(cloud, {held: name}, METADATA, LIMIT)
    again = take_snapshots(cloud, {held: name}, METADATA, LIMIT)
    assert taken == again, "its time is that of the snapshot, also after a repeat"
    assert taken.first <= taken.last

    copy = copy_of_snapshot(cloud, taken.ids[held], copyable.size, name, METADATA, LIMIT)
    assert copy == copy_of_snapshot(cloud, taken.ids[held], copyable.size, name, METADATA, LIMIT)
    attach(cloud, copy, pair.ids["db_b"], LIMIT)

    (shown,) = cloud.cinder_rows("volumes", "/volumes/detail", name=name)
    assert (shown["id"], shown["snapshot_id"], shown["status"]) == (copy, taken.ids[held], "in-use")
    assert shown["metadata"] == METADATA
    assert cloud.volume(held).attachments[0]["server_id"] == pair.ids["db_a"]

    detach(cloud, copy, pair.ids["db_b"], LIMIT)
    for _ in range(2):
        delete_copy(cloud, name, LIMIT)
        delete_snapshots(cloud, [name], LIMIT)
    assert not cloud.cinder_rows("volumes", "/volumes", name=name)
    assert not cloud.cinder_rows("snapshots", "/snapshots", name=name)


def test_a_copy_that_is_attached_is_not_deleted(
    cloud: Cloud, rig: Rig, pair: Made, held: str, name: str
) -> None:
    taken = take_snapshots(cloud, {held: name}, METADATA, LIMIT)
    copy = copy_of_snapshot(cloud, taken.ids[held], 1, name, METADATA, LIMIT)
    attach(cloud, copy, pair.ids["db_b"], LIMIT)

    with pytest.raises(CloudError) as raised:
        delete_copy(cloud, name, 1.0)

    assert raised.value.code == "TIMEOUT"
    assert cloud.volume(copy).status == "in-use"
    detach(cloud, copy, pair.ids["db_b"], LIMIT)
    delete_copy(cloud, name, LIMIT)
    delete_snapshots(cloud, [name], LIMIT)


def test_what_was_never_made_is_gone(cloud: Cloud, name: str) -> None:
    delete_copy(cloud, name, LIMIT)
    delete_snapshots(cloud, [name], LIMIT)
