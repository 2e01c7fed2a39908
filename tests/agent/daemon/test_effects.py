# SPDX-License-Identifier: Apache-2.0
"""Each boot of a server has an identity, which the agent tells; and it tells which commands are in
effect on the present one, and of which what they started has ended."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from mistral_failover.agent.channel.interface import Heartbeat
from mistral_failover.agent.daemon import effects, journal
from support.agents import Node, shell
from support.waiting import until


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(effects, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(effects, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(effects, "GONE_FOR", 0.0)
    return Node(tmp_path / "node", f"memory://{uuid.uuid4().hex}")


def heard(node: Node, holds: Callable[[Heartbeat], object]) -> Heartbeat:
    """The first heartbeat for which this holds."""
    found: list[Heartbeat] = []

    def comes() -> bool:
        beat = node.channel.heard(node.address)
        if beat is not None and holds(beat):
            found.append(beat)
        return bool(found)

    until(comes, 30)
    return found[0]


def reboot(monkeypatch: pytest.MonkeyPatch) -> str:
    boot = str(uuid.uuid4())
    monkeypatch.setattr(journal, "boot_id", lambda: boot)
    return boot


def test_heartbeats_and_results_carry_the_boot(node: Node) -> None:
    with node.agent():
        result = node.run("checked")
        beat = heard(node, lambda beat: beat.boot)

    assert result.boot == beat.boot == journal.boot_id()


def test_another_agent_on_the_same_boot_changes_nothing(node: Node) -> None:
    with node.agent():
        first = node.run("increment")
    with node.agent():
        beat = heard(node, lambda beat: beat.in_effect)

    assert (beat.boot, beat.in_effect) == (first.boot, ("increment",))


def test_after_a_boot_only_what_its_check_finds_is_in_effect(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = journal.boot_id()
    with node.agent():
        node.run("increment", id="one")
        node.run("checked", id="two")
    boot = reboot(monkeypatch)

    with node.agent():
        beat = heard(node, lambda beat: beat.in_effect)
        known = node.run("increment", id="one")

    assert (beat.boot, beat.in_effect) == (boot, ("checked",))
    assert (known.replayed, known.boot) == (True, before), "it took effect on the former boot"
    assert node.count() == 2, "nothing ran again"


def test_what_starts_later_is_found_then(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = node.folder / "runs"
    node.commands["app"] = {"argv": shell(f"echo >{runs}"), "check": shell(f"test -e {runs}")}
    with node.agent():
        node.run("app")
    runs.unlink()
    reboot(monkeypatch)

    with node.agent():
        assert heard(node, lambda beat: beat.boot == journal.boot_id()).in_effect == ()
        runs.touch()
        heard(node, lambda beat: beat.in_effect == ("app",))


def test_a_start_on_the_new_boot_is_in_effect(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    with node.agent():
        node.run("increment", id="one")
    boot = reboot(monkeypatch)

    with node.agent():
        again = node.run("increment", id="two")
        heard(node, lambda beat: beat.in_effect == ("increment",))

    assert (again.replayed, again.boot) == (False, boot)


def test_what_failed_is_not_in_effect(node: Node) -> None:
    node.commands["fails"] = {"argv": shell("exit 3")}
    with node.agent():
        node.run("fails", id="one")
        node.run("increment", id="two")
        beat = heard(node, lambda beat: beat.in_effect)

    assert beat.in_effect == ("increment",)


def test_what_an_operator_or_a_check_found_to_be_done_is_so_on_this_boot(tmp_path: Path) -> None:
    with journal.Journal(tmp_path / "journal", boot="first") as before:
        for name in ("settled", "found"):
            before.start(1, name, name, {}, "reply")
            before.leave(1, name, "unknown", "the server went down")
    with journal.Journal(tmp_path / "journal", boot="second") as after:
        after.settle("settled", done=True)
        after.found(1, "found", "done", "its check found that it took effect")
        assert {row.name: row.boot_id for row in after.in_effect(1)} == {
            "found": "second",
            "settled": "second",
        }


def test_what_a_command_has_done_is_in_effect_at_once_and_the_latest_is_last(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "FIRST_PAUSE", 1000.0)
    with node.agent():
        node.run("increment", id="one")
        node.run("checked", id="two")
        heard(node, lambda beat: beat.in_effect == ("increment", "checked"))
        node.run("increment", id="three")
        heard(node, lambda beat: beat.in_effect == ("checked", "increment"))


@pytest.fixture
def runs(node: Node) -> Path:
    """The file that stands for a running application; its check looks for it."""
    file = node.folder / "runs"
    look = shell(f"printf . >>{node.folder}/checks; test -e {file}")
    node.commands["app"] = {"argv": shell(f"echo >{file}"), "check": look}
    return file


def checked(node: Node, times: int = 3) -> None:
    """Wait until the check of ``app`` has run some more times."""
    log = node.folder / "checks"
    before = len(log.read_text()) if log.exists() else 0
    until(lambda: log.exists() and len(log.read_text()) >= before + times, 30)


def test_what_a_command_started_has_ended_by_its_check(node: Node, runs: Path) -> None:
    with node.agent():
        node.run("app", id="first")
        checked(node)
        runs.unlink()
        beat = heard(node, lambda beat: beat.ended)

        assert (beat.ended, beat.in_effect) == ({"first"}, ("app",))
        node.run("app", id="second")
        heard(node, lambda beat: not beat.ended)


def test_it_may_come_back_by_itself(node: Node, runs: Path) -> None:
    with node.agent():
        node.run("app", id="first")
        checked(node)
        runs.unlink()
        heard(node, lambda beat: beat.ended)
        runs.touch()
        heard(node, lambda beat: not beat.ended)


def test_another_agent_finds_it_too(node: Node, runs: Path) -> None:
    with node.agent():
        node.run("app", id="first")
        checked(node)
    runs.unlink()
    with node.agent():
        assert heard(node, lambda beat: beat.ended).ended == {"first"}


@pytest.mark.parametrize(
    "check",
    [
        pytest.param("exit 1", id="never found it running"),
        pytest.param("test -e RUNS || exit 2", id="does not know"),
        pytest.param("[ $(wc -c <CHECKS) != 5 ]", id="did not find it once"),
    ],
)
def test_it_has_not_ended_for_a_check_that(node: Node, runs: Path, check: str) -> None:
    log = node.folder / "checks"
    words = check.replace("RUNS", str(runs)).replace("CHECKS", str(log))
    node.commands["app"]["check"] = shell(f"printf . >>{log}; {words}")
    beats: list[Heartbeat] = []
    with node.agent():
        node.run("app", id="first")
        checked(node)
        runs.unlink()
        for _ in range(4):
            checked(node)
            beats.append(heard(node, bool))

    assert not any(beat.ended for beat in beats)


def test_a_short_restart_is_no_end(node: Node, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "GONE_FOR", 1000.0)
    with node.agent():
        node.run("app", id="first")
        checked(node)
        runs.unlink()
        checked(node)

        assert not heard(node, bool).ended
