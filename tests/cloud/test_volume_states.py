# SPDX-License-Identifier: Apache-2.0
"""The table of a volume's states: complete, and without advice that would free an attached
volume."""

from __future__ import annotations

import pytest

from mistral_failover.cloud.volume_states import STATES, TAKEN, USABLE, set_to, state_named

CINDER_29 = (
    *("creating", "available", "deleting", "error", "error_deleting", "error_managing"),
    *("managing", "attaching", "in-use", "detaching", "maintenance", "restoring-backup"),
    *("error_restoring", "reserved", "awaiting-transfer", "backing-up", "error_backing-up"),
    *("error_extending", "downloading", "uploading", "retyping", "extending"),
)
"""``cinder.objects.fields.VolumeStatus.ALL``."""


@pytest.mark.parametrize("status", CINDER_29)
def test_each_state_of_cinder_is_usable_or_has_a_row(status: str) -> None:
    assert (status in USABLE) != (status in STATES)
    assert (state_named(status) is None) == (status in USABLE)


@pytest.mark.parametrize("status", sorted(STATES))
def test_each_row_says_what_happens_and_what_ends_it(status: str) -> None:
    row = STATES[status]
    remedy = row.remedy.format(volume="vol-1")

    assert row.clause
    assert remedy.endswith(".")
    assert "{" not in remedy
    assert "volume set" not in remedy, "only set_to() knows whether something is attached"
    assert row.broken == status.startswith("error")
    assert not (row.broken and row.passes)


def test_a_state_that_takes_hours_names_what_ends_it() -> None:
    assert "openstack volume backup list --volume v" in STATES["backing-up"].remedy.format(
        volume="v"
    )
    assert "transfer request delete" in STATES["awaiting-transfer"].remedy
    assert "retype" in STATES["retyping"].remedy


def test_a_word_that_is_not_known_is_an_error_only_if_it_says_so() -> None:
    unknown, failed = state_named("being-polished"), state_named("error_polishing")
    assert unknown is not None
    assert failed is not None
    assert (unknown.passes, unknown.broken) == (True, False)
    assert (failed.passes, failed.broken) == (False, True)


@pytest.mark.parametrize("recorded", [True, False])
def test_nothing_attached_is_ever_to_be_called_available(recorded: bool) -> None:
    assert set_to("v", attached=True, recorded=recorded).value("state") == ("in-use",)
    assert set_to("v", attached=False, recorded=recorded).value("state") == ("available",)


def test_the_states_of_an_attachment_pass_by_themselves() -> None:
    assert all(STATES[status].passes for status in TAKEN)
