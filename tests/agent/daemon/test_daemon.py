# SPDX-License-Identifier: Apache-2.0
"""A real agent carries real commands out, each once, and says what came of them."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import suppress

import pytest

from mistral_failover.agent.channel.interface import ChannelError
from mistral_failover.agent.daemon import intake, journal
from mistral_failover.agent.daemon.journal import Journal
from support.agents import GROUP_KEY, OTHER_SERVER, SERVER, Node, shell
from support.waiting import until


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path / "node", f"memory://{uuid.uuid4().hex}")


def test_a_command_is_known_after_the_agent_began_anew(node):
    with node.agent():
        node.run()
    with node.agent():
        assert node.run().replayed
    assert node.count() == 1


def test_an_idle_agent_begins_a_command_at_once(node, monkeypatch):
    with node.agent():
        with monkeypatch.context() as patch:
            patch.setattr(intake, "_IDLE", 30.0)
            node.run(id="first")
            begun = time.monotonic()
            node.run(id="second")
            assert time.monotonic() - begun < 10.0
        node.run(id="third")  # ends the long wait


def test_arguments_go_to_the_program_as_they_are(node):
    node.commands["say"] = {
        "argv": ["/bin/echo", "[{device}]", "{{device}}"],
        "arguments": {"device": ".*"},
    }
    with node.agent():
        assert node.run("say", arguments={"device": "$(id); x"}).stdout == "[$(id); x] {device}\n"


@pytest.mark.parametrize(
    "arguments",
    [{}, {"device": "/etc/passwd"}, {"device": "/dev/vdb", "more": "x"}, {"device": ["/dev/vdb"]}],
    ids=["missing", "not matching", "not declared", "a list"],
)
def test_arguments_that_are_not_declared_so_are_refused(node, arguments):
    node.commands["say"] = {
        "argv": ["/bin/echo", "{device}"],
        "arguments": {"device": "/dev/[a-z]+"},
    }
    with node.agent(), pytest.raises(ChannelError) as raised:
        node.run("say", arguments=arguments)
    assert raised.value.code == "REFUSED"
    assert "/etc/passwd" not in str(raised.value)


def test_an_id_stands_for_one_command(node):
    with node.agent():
        node.run()
        with pytest.raises(ChannelError) as raised:
            node.run("stop")
    assert raised.value.code == "REFUSED"
    assert node.stops() == 0


def test_a_command_of_another_epoch_is_refused(node):
    with node.agent(epoch=3):
        node.run(epoch=3)
        with pytest.raises(ChannelError) as raised:
            node.run(epoch=2, id="key-2", limit=2.0)
    assert raised.value.code in ("OLD_EPOCH", "NO_ANSWER")
    assert node.count() == 1


def test_a_lanes_commands_run_one_after_another(node):
    node.commands["slow"] = {
        "argv": shell(f"echo in >> {node.folder}/slow; sleep 0.3; echo out >> {node.folder}/slow")
    }
    with node.agent():
        threads = [
            threading.Thread(target=node.run, args=("slow",), kwargs={"id": f"key-{n}"})
            for n in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert (node.folder / "slow").read_text().split() == ["in", "out"] * 3


def test_lanes_do_not_wait_for_each_other(node):
    wall = node.folder / "gate"
    node.commands["long"] = {"argv": shell(f"until test -e {wall}; do sleep 0.02; done")}
    node.commands["stop"]["lane"] = "other"
    with node.agent():
        thread = threading.Thread(target=node.run, args=("long",))
        thread.start()
        until(lambda: node.journal.exists() and any(r.pid for r in node.rows()))
        node.run("stop", id="key-2")
        wall.touch()
        thread.join(20)
    assert node.stops() == 1


def test_heartbeats_say_what_the_agent_does(node):
    node.commands["long"] = {
        "argv": shell(f"until test -e {node.folder}/gate; do sleep 0.02; done")
    }
    with node.agent(epoch=4):
        thread = threading.Thread(target=node.run, args=("long",), kwargs={"epoch": 4})
        thread.start()
        heard = until(lambda: (h := node.channel.heard(node.address)) and h.running and h)
        (node.folder / "gate").touch()
        thread.join(20)
        assert (heard.epoch, heard.running, heard.deposed) == (4, ("long",), None)
        assert heard.commands == set(node.commands)
        assert until(lambda: not node.channel.heard(node.address).running)


def test_a_node_that_knows_its_groups_key_learns_its_name(node):
    with node.agent(key=None, member=None, group_key=GROUP_KEY.hex()):
        assert node.run().exit_code == 0
        assert until(lambda: node.channel.heard(node.address))
    assert node.count() == 1


def test_output_of_any_size_comes_back_in_part(node):
    node.commands["flood"] = {"argv": shell("head -c 3000000 /dev/urandom; echo; echo end")}
    with node.agent():
        result = node.run("flood")
    assert result.exit_code == 0
    assert result.stdout.endswith("\nend\n")


# -- the epoch


def test_a_deposed_agent_stops_what_it_runs_and_obeys_the_new_epoch_only(node):
    node.commands["long"] = {"argv": shell(f"echo x >> {node.counter}; sleep 60")}
    errors = []

    def ask():
        try:
            node.run("long")
        except ChannelError as error:
            errors.append(error)

    with node.agent(on_deposed=["stop"]):
        thread = threading.Thread(target=ask)
        thread.start()
        until(node.count)
        node.channel.depose(node.address, 2)
        thread.join(20)
        assert node.run(id="key-2", epoch=2).exit_code == 0
        assert node.stops() == 1
        with pytest.raises(ChannelError):
            node.run(id="key-3", epoch=1, limit=1.5)
    assert [e.code for e in errors] == ["UNKNOWN_OUTCOME"]
    assert node.count() == 2


def test_an_agent_that_was_away_learns_that_it_was_deposed(node):
    with node.agent(on_deposed=["stop"]):
        node.run()
    node.channel.depose(node.address, 5)
    with node.agent(on_deposed=["stop"]):
        until(lambda: node.stops() == 1)
        heard = until(lambda: (h := node.channel.heard(node.address)) and h.epoch == 5 and h)
        assert "stop" in until(lambda: heard.deposed)
    with node.agent(on_deposed=["stop"]):
        assert node.run(id="key-2", epoch=5).exit_code == 0
    assert node.stops() == 1


def test_an_agent_without_its_journal_learns_the_epoch_by_the_next_command(node):
    with node.agent(on_deposed=["stop"]):
        assert node.run(epoch=7).exit_code == 0
    assert node.stops() == 1
    assert node.count() == 1


def test_a_deposed_agent_takes_no_command_until_everything_is_stopped(node):
    node.commands["stop"] = {"argv": shell(f"test -e {node.folder}/can")}
    with node.agent(on_deposed=["stop"]):
        node.run()
        node.channel.depose(node.address, 2)
        heard = until(
            lambda: (h := node.channel.heard(node.address)) and "ended" in (h.deposed or "") and h
        )
        assert heard.deposed == "stop ended with 1"
        with pytest.raises(ChannelError) as raised:
            node.run(id="key-2", epoch=2)
        assert raised.value.code == "REFUSED"
        assert "stop ended with 1" in raised.value.message
        (node.folder / "can").touch()

        def served():
            with suppress(ChannelError):
                return node.run(id="key-3", epoch=2)

        assert until(served).exit_code == 0
    assert node.count() == 2


def test_a_notice_of_the_same_or_an_older_epoch_changes_nothing(node):
    with node.agent(on_deposed=["stop"], epoch=3):
        node.channel.depose(node.address, 3)
        node.channel.depose(node.address, 2)
        assert node.run(epoch=3).exit_code == 0
    assert node.stops() == 0


def test_a_new_server_behind_the_old_name_gets_nothing_of_its_predecessor(node, tmp_path):
    new = Node(tmp_path / "new", node.url, OTHER_SERVER)
    old_command = node.command(limit=1.0)
    with new.agent(), pytest.raises(ChannelError) as raised:
        node.channel.run(old_command)
    assert raised.value.code == "NO_ANSWER"
    with new.agent():
        assert new.run().exit_code == 0
    assert (node.count(), new.count()) == (0, 1)


# -- the end


def test_an_agent_that_ends_lets_its_command_finish(node):
    node.commands["slow"] = {"argv": shell(f"echo x >> {node.counter}; sleep 0.7")}
    results = []
    thread = threading.Thread(target=lambda: results.append(node.run("slow")))
    with node.agent():
        thread.start()
        until(node.count)
    thread.join(20)
    assert results[0].exit_code == 0
    assert node.rows()[0].state == "done"


def test_an_agent_that_ends_hands_back_what_has_not_begun(node):
    gate = node.folder / "gate"
    wait = f"until test -e {gate}; do sleep 0.02; done"
    node.commands["slow"] = {"argv": shell(f"echo x >> {node.counter}; {wait}")}
    results = []
    with node.agent():
        first = threading.Thread(target=lambda: results.append(node.run("slow")))
        first.start()
        until(node.count)
        second = threading.Thread(target=lambda: results.append(node.run("slow", id="key-2")))
        second.start()
        time.sleep(0.1)
        opening = threading.Timer(1.0, gate.touch)  # the agent is told to end before
        opening.start()
    opening.join()
    assert node.count() == 1
    with node.agent():
        first.join(20)
        second.join(20)
    assert node.count() == 2
    assert {r.exit_code for r in results} == {0}


def test_what_does_not_end_in_time_is_cut_off_and_looked_into_by_the_next_agent(node):
    node.commands["checked"]["argv"] = shell(f"echo x >> {node.counter}; sleep 60")
    results = []
    thread = threading.Thread(target=lambda: results.append(node.run("checked")))
    with node.agent(finish=0.2):
        thread.start()
        until(node.count)
    assert node.rows()[0].state == "unknown"
    with node.agent():
        thread.join(20)
    assert results[0].exit_code == 0
    assert node.count() == 1


def test_an_agent_begins_on_a_full_disk(node, monkeypatch):
    with node.agent():
        node.run(id="before")
    with Journal(node.journal) as former:
        former.start(1, "key-1", "increment", {}, "reply")
    open_file = journal.open_file

    def opened(folder):
        db = open_file(folder)
        db.execute("PRAGMA query_only = ON")
        return db

    monkeypatch.setattr(journal, "open_file", opened)
    with node.agent():
        assert node.run(id="before").replayed
        with pytest.raises(ChannelError) as raised:
            node.run(limit=1.0)
        assert raised.value.code == "NO_ANSWER", "it may have run"
        with pytest.raises(ChannelError) as raised:
            node.run(id="new", limit=5.0)
        assert raised.value.code == "REFUSED"
    assert node.count() == 1


def test_a_journal_from_another_servers_disk_begins_anew(node, tmp_path):
    with node.agent(epoch=7):
        node.run(epoch=7)
    copied = Node(tmp_path / "node", node.url, SERVER.replace("c01", "c03"))
    with copied.agent(epoch=2):
        result = copied.run(epoch=2)
    assert not result.replayed
    assert [row.epoch for row in copied.rows()] == [2]
