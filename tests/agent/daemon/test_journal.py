# SPDX-License-Identifier: Apache-2.0
"""The journal keeps what decides whether something may run, whatever happens to the agent."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading

import pytest

from mistral_failover.agent.daemon import journal_file
from mistral_failover.agent.daemon.journal import KEPT, Journal, ProcessIdentity
from mistral_failover.errors import CodedError

PROCESS = ProcessIdentity(4711, 99, "a-boot")


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal", boot="a-boot") as one:
        yield one


def start(journal, command_id="key-1", epoch=1, name="pg-start", arguments=None):
    journal.start(epoch, command_id, name, arguments or {}, "reply")


def test_a_command_is_found_as_it_was_written(journal, tmp_path):
    start(journal, arguments={"device": "/dev/vdb", "n": 3})
    journal.running(1, "key-1", PROCESS)
    journal.done(1, "key-1", exit_code=3, stdout="out", stderr="err", seconds=1.5)
    row = journal.find(1, "key-1")
    assert (row.name, row.state, row.exit_code) == ("pg-start", "done", 3)
    assert (row.stdout, row.stderr, row.seconds) == ("out", "err", 1.5)
    assert row.arguments == {"device": "/dev/vdb", "n": 3}
    assert row.process == PROCESS
    assert row.started_at <= row.ended_at


def test_another_epoch_is_another_command(journal):
    start(journal)
    assert journal.find(2, "key-1") is None


def test_everything_is_there_after_a_crash(journal, tmp_path):
    start(journal)
    journal.raise_epoch(3)
    journal.learn_member("db_a")
    # A process that opens it now sees what a crash at this line would leave.
    with Journal(tmp_path / "journal", hold=False) as other:
        assert other.find(1, "key-1").state == "started"
        assert other.epoch(1) == 3
        assert other.member() == "db_a"
        assert other.deposition(3).done_at is None


def test_one_agent_at_a_time_has_it(journal, tmp_path):
    with pytest.raises(CodedError) as raised:
        Journal(tmp_path / "journal")
    assert raised.value.code == "JOURNAL_HELD"
    journal.close()
    with Journal(tmp_path / "journal") as other:
        assert other.is_held()
        with Journal(tmp_path / "journal", hold=False) as looking:
            assert looking.is_held()


def test_no_process_has_it_once_the_agent_ended(journal, tmp_path):
    journal.close()
    with Journal(tmp_path / "journal", hold=False) as looking:
        assert not looking.is_held()


def test_who_looks_whether_an_agent_has_it_keeps_none_from_beginning(
    journal, tmp_path, monkeypatch
):
    monkeypatch.setattr(journal_file, "LOOKING", 30.0)
    journal.close()
    looking = os.open(tmp_path / "journal" / "lock", os.O_RDWR)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.2, os.close, (looking,)).start()
    with Journal(tmp_path / "journal") as agent:
        assert agent.is_held()


def test_who_looks_leaves_nothing_in_the_agents_way(journal, tmp_path):
    journal.close()
    (tmp_path / "journal" / "lock").unlink()
    with Journal(tmp_path / "journal", hold=False) as looking:
        assert not looking.is_held()
    assert not (tmp_path / "journal" / "lock").exists()


def test_a_folder_that_others_may_look_into_is_refused(journal, tmp_path):
    journal.close()
    (tmp_path / "journal").chmod(0o750)
    with pytest.raises(CodedError) as raised:
        Journal(tmp_path / "journal")
    assert raised.value.code == "JOURNAL"
    assert raised.value.remedy == f"Run: chmod 700 {tmp_path / 'journal'}"


def test_an_agent_reads_it_even_where_there_is_no_space_to_share_it(journal, tmp_path):
    start(journal)
    journal.close()
    (tmp_path / "journal" / "journal.sqlite-shm").mkdir()  # as little use as on a full disk
    with Journal(tmp_path / "journal") as agent:
        assert agent.find(1, "key-1").state == "started"
    with pytest.raises(CodedError):
        Journal(tmp_path / "journal", hold=False)


def test_on_a_full_disk_it_is_known_whose_it_is(journal):
    assert not journal.belong_to("me")
    journal._db.execute("PRAGMA query_only = ON")
    assert not journal.belong_to("me")


def test_others_can_not_read_it(journal, tmp_path):
    folder = tmp_path / "journal"
    assert folder.stat().st_mode & 0o077 == 0
    assert [f.name for f in folder.iterdir() if f.stat().st_mode & 0o077] == []


def test_the_epoch_never_falls(journal):
    assert journal.epoch(1) == 1
    assert journal.raise_epoch(4)
    assert not journal.raise_epoch(4)
    assert not journal.raise_epoch(3)
    assert journal.epoch(1) == 4
    assert journal.epoch(6) == 6


def test_a_deposition_is_due_until_it_is_done(journal):
    assert journal.deposition(1) is None
    journal.raise_epoch(2)
    journal.deposing(2, done=False, message="pg-stop ended with 1")
    found = journal.deposition(2)
    assert (found.attempts, found.done_at, found.message) == (1, None, "pg-stop ended with 1")
    journal.raise_epoch(3)
    journal.deposing(3, done=True, message="stopped")
    assert journal.deposition(3).done_at is not None
    assert journal.deposition(2).done_at is not None


def test_open_are_commands_that_began_and_those_with_an_unknown_outcome(journal):
    for number, state in enumerate(["started", "unknown", "refused", "received", "done"]):
        start(journal, state)
        if state == "done":
            journal.done(1, state, exit_code=0)
        elif number:
            journal.leave(1, state, state, "because")
    assert [row.id for row in journal.open_rows()] == ["started", "unknown"]


def test_a_second_begin_forgets_the_former_process(journal):
    start(journal)
    journal.running(1, "key-1", PROCESS)
    journal.leave(1, "key-1", "received", "its check found that it did not take effect")
    start(journal)
    row = journal.find(1, "key-1")
    assert (row.state, row.process, row.message) == ("started", None, "")


@pytest.mark.parametrize(("done", "state"), [(True, "done"), (False, "received")])
def test_a_person_settles_what_is_unknown(journal, done, state):
    start(journal)
    assert journal.settle("key-1", done=done) is None
    journal.leave(1, "key-1", "unknown", "the agent died while it ran")
    row = journal.settle("key-1", done=done)
    assert row.state == state
    assert "an operator stated" in row.message
    assert journal.settle("key-1", done=done) is None


def test_a_persons_word_that_it_is_done_holds(journal):
    start(journal)
    journal.leave(1, "key-1", "unknown", "")
    journal.settle("key-1", done=True)
    journal.leave(1, "key-1", "unknown", "its check ended with 2")
    assert journal.find(1, "key-1").state == "done"


def test_of_earlier_epochs_the_latest_commands_are_kept(journal):
    for number in range(KEPT + 5):
        start(journal, f"key-{number}")
    start(journal, "now", epoch=2)
    journal.raise_epoch(2)
    assert len(journal.latest(KEPT * 2)) == KEPT + 1
    assert journal.find(1, "key-4") is None
    assert journal.find(1, "key-5") is not None
    assert journal.find(2, "now") is not None


def test_several_threads_write_at_once(journal):
    def write(which):
        for number in range(20):
            start(journal, f"{which}-{number}")
            journal.done(1, f"{which}-{number}", exit_code=0)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {row.state for row in journal.latest(100)} == {"done"}
    assert len(journal.latest(100)) == 80


def test_a_journal_of_a_later_version_is_refused(journal, tmp_path):
    journal.close()
    with sqlite3.connect(tmp_path / "journal" / "journal.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(CodedError, match="version 99"):
        Journal(tmp_path / "journal")


def test_a_place_that_can_not_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CodedError) as raised:
        Journal(tmp_path / "file" / "journal")
    assert raised.value.code == "JOURNAL"


def test_what_is_no_journal_is_refused_and_can_be_opened_once_it_is_gone(tmp_path):
    folder = tmp_path / "journal"
    folder.mkdir(mode=0o700)
    (folder / "journal.sqlite").write_text("not a database, and long enough to look like none" * 9)
    with pytest.raises(CodedError):
        Journal(folder)
    (folder / "journal.sqlite").unlink()
    Journal(folder).close()
