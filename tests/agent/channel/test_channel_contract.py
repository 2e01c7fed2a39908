# SPDX-License-Identifier: Apache-2.0
"""What holds of every channel, whatever carries its commands: the emulator's guests over HTTP, and
the real agent over kombu's transports in memory and in files."""

import threading
import uuid
from contextlib import ExitStack

import pytest
from keystoneauth1.session import Session

from mistral_failover.agent.channel.interface import (
    ChannelContext,
    ChannelError,
    Command,
    channel_for,
)
from mistral_failover.agent.wire import END_REHEARSAL, Address
from mistral_failover.cloud.transport import LeaseLost, Unguarded
from mistral_failover.lab.drill.rehearsals import GuestIsolating, processes
from support.agents import SECRET, Node, shell
from support.waiting import until

EPOCH = 3


class Ending:
    """The guard of a lease that has ended."""

    request_id = None

    def permit(self, method):  # noqa: ARG002 - the protocol's parameter
        raise LeaseLost("The lease has ended.")


class EmulatedWorld:
    """A guest of the emulator."""

    def __init__(self, connect, pair, emulator, emulated):
        self._connect, self._emulator = connect, emulator
        self._url = emulated.url.replace("http://", "emulator+http://")
        self.to = Address("group-1", "payments", "db_a", pair.a)
        emulator.add_application("pg", start="pg-start", stop="pg-stop", checks=["pg-check"])
        emulator.add_application(
            "db", start="fails", stop="db-stop", needs_volume=True, rehearse=False
        )

    def channel(self, guard=None):
        cloud = self._connect(guard=guard) if guard else self._connect()
        cloud.session.timeout = 1.0
        return channel_for(self._url, ChannelContext(cloud.session, guard or Unguarded()))

    def starts(self):
        return len(self._emulator.audit(kind="application_started"))

    def rehearsed(self):
        """What runs in a rehearsal."""
        return bool(self._emulator.guests()[self.to.server_id]["rehearsed"])

    def slow_down(self, seconds):
        self._emulator.set_latency(command_start=seconds)

    def hang(self):
        self._emulator.fault("server", self.to.server_id, "hang")


class BrokerWorld:
    """A node with the real agent."""

    def __init__(self, folder, url):
        self._stack = ExitStack()
        self._node = Node(folder / "node", url, epoch=EPOCH)
        self._delay = folder / "delay"
        self.to = self._node.address
        self._key_file = folder / "node" / "secret"
        started = folder / "started"
        self._started = started
        self._guest = folder / "guest"
        here = {"rehearse": "same", "environment": {"DRILL_GUEST": str(folder)}}
        self._node.commands |= {
            "pg-start": {
                "argv": shell(
                    f"sleep $(cat {self._delay} 2>/dev/null || echo 0); "
                    'echo x >> "$DRILL_GUEST/started"; sleep 63 >/dev/null 2>&1 & echo started'
                ),
                **here,
            },
            "pg-check": {"argv": shell('test -s "$DRILL_GUEST/started" && echo max'), **here},
            "pg-stop": {"argv": shell("echo stopped"), **here},
            "fails": {"argv": shell("echo no such device >&2; exit 32")},
        }
        isolating = GuestIsolating(self._guest)
        self._stack.enter_context(
            self._node.agent(finish=0.1, isolating=isolating, on_deposed=["pg-stop"])
        )

    def channel(self, guard=None):
        context = ChannelContext(Session(), guard or Unguarded(), str(self._key_file))
        return channel_for(self._node.url, context)

    def starts(self):
        return len(self._started.read_text().splitlines()) if self._started.exists() else 0

    def rehearsed(self):
        """What runs in a rehearsal."""
        return bool(list(processes(self._guest)))

    def slow_down(self, seconds):
        self._delay.write_text(str(seconds))

    def hang(self):
        self._stack.close()

    def close(self):
        self._stack.close()


@pytest.fixture(params=["emulated", "memory", "filesystem"])
def world(request, tmp_path):
    if request.param == "emulated":
        yield EmulatedWorld(
            *(request.getfixturevalue(name) for name in ("connect", "pair", "emulator", "emulated"))
        )
        return
    memory = f"memory://{uuid.uuid4().hex}"
    made = BrokerWorld(
        tmp_path, memory if request.param == "memory" else f"filesystem://{tmp_path}/broker"
    )
    yield made
    made.close()


def command(world, name="pg-start", **more):
    return Command(
        **{"id": "key-1", "to": world.to, "epoch": EPOCH, "name": name, "limit": 5.0, **more}
    )


def failure(channel, sent):
    with pytest.raises(ChannelError) as raised:
        channel.run(sent)
    return raised.value


def test_a_command_runs_and_returns_its_result(world):
    result = world.channel().run(command(world))
    assert (result.id, result.exit_code, result.replayed) == ("key-1", 0, False)
    assert result.stdout
    assert world.starts() == 1


def test_the_same_id_again_returns_the_recorded_result(world):
    first = world.channel().run(command(world))
    again = world.channel().run(command(world))
    assert (again.replayed, again.stdout) == (True, first.stdout)
    assert world.starts() == 1


def test_the_same_id_from_two_at_once_runs_once(world):
    world.slow_down(0.3)
    results = []

    def run():
        results.append(world.channel().run(command(world)))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [result.exit_code for result in results] == [0, 0]
    assert world.starts() == 1


def test_a_command_that_fails_is_a_result(world):
    result = world.channel().run(command(world, "fails"))
    assert result.exit_code == 32
    assert result.stderr


def test_a_command_that_the_member_does_not_allow_is_refused(world):
    error = failure(world.channel(), command(world, "rm"))
    assert error.code == "UNKNOWN_COMMAND"
    assert "allow-list" in error.remedy


def test_a_command_that_takes_longer_than_its_limit_is_waited_for_while_it_runs(world):
    world.slow_down(4)
    result = world.channel().run(command(world, limit=3.0, longest=60.0))
    assert result.exit_code == 0
    assert world.starts() == 1


def test_one_that_takes_too_long_is_given_up_and_it_is_told_what_was_heard(world):
    world.slow_down(12)
    error = failure(world.channel(), command(world, limit=3.0, longest=3.0))
    assert error.code == "NO_ANSWER"
    assert "db_a" in error.message
    assert error.heard.startswith("it said ")
    assert "pg-start" in error.heard


def test_a_member_that_does_not_answer_is_given_up_after_the_limit(world):
    world.channel().run(command(world))
    world.hang()
    error = failure(world.channel(), command(world, id="key-2", limit=0.3))
    assert error.code == "NO_ANSWER"
    assert "db_a" in error.message


def test_a_deposed_member_takes_no_command_of_the_former_epoch(world):
    channel = world.channel()
    channel.run(command(world))
    for epoch in (EPOCH + 1, EPOCH + 1, EPOCH):
        channel.depose(world.to, epoch)
    assert failure(channel, command(world, id="key-2")).code == "OLD_EPOCH"
    assert channel.run(command(world, id="key-3", epoch=EPOCH + 1, limit=10.0)).exit_code == 0
    assert world.starts() == 2


def test_what_the_member_said_last_is_known(world):
    channel = world.channel()
    channel.run(command(world))

    def idle():
        heard = channel.heard(world.to)
        return heard if heard and not heard.running else None

    heard = until(idle)
    assert (heard.epoch, heard.deposed) == (EPOCH, None)
    assert heard.ago < 5


def test_nothing_runs_once_the_lease_is_lost(world):
    with pytest.raises(LeaseLost):
        world.channel(Ending()).run(command(world))
    assert world.starts() == 0


def test_the_secret_is_in_no_error(world):
    errors = [
        failure(world.channel(), command(world, "rm")),
        failure(world.channel(), command(world, "rm", id="key-2", epoch=1)),
    ]
    assert not [error for error in errors if SECRET in f"{error} {error.remedy} {error.heard}"]


# -- rehearsals

FIRST, SECOND = str(uuid.uuid4()), str(uuid.uuid4())


def rehearse(world, name="pg-start", rehearsal=FIRST, **more):
    sent = command(world, name, **{"id": uuid.uuid4().hex, "rehearsal": rehearsal, **more})
    return world.channel().run(sent)


def not_rehearsed(world, name="pg-start", rehearsal=FIRST, **more):
    with pytest.raises(ChannelError) as raised:
        rehearse(world, name, rehearsal, **more)
    return raised.value


def test_what_is_rehearsed_runs_apart_and_the_next_command_of_the_rehearsal_sees_it(world):
    assert rehearse(world, "pg-check").exit_code == 1
    assert rehearse(world).exit_code == 0

    said = rehearse(world, "pg-check")
    assert (said.exit_code, said.stdout.startswith("max")) == (0, True)
    assert world.starts() == 0
    assert world.rehearsed()


def test_a_rehearsed_command_runs_once(world):
    first, again = (rehearse(world, id="key-1") for _ in range(2))
    assert (first.replayed, again.replayed) == (False, True)


def test_the_end_of_a_rehearsal_leaves_nothing_and_may_be_repeated(world):
    rehearse(world)
    for rehearsal in (FIRST, FIRST, SECOND):
        assert rehearse(world, END_REHEARSAL, rehearsal).exit_code == 0
        assert not world.rehearsed()
    for rehearsal in (FIRST, SECOND):
        assert not_rehearsed(world, rehearsal=rehearsal).code == "REHEARSAL_ENDED"
    assert not world.rehearsed()


def test_one_rehearsal_at_a_time(world):
    rehearse(world)
    error = not_rehearsed(world, rehearsal=SECOND)
    assert (error.code, FIRST in error.message) == ("REHEARSAL_RUNNING", True)
    assert error.remedy


def test_a_command_that_may_not_be_rehearsed_is_refused(world):
    error = not_rehearsed(world, "fails")
    assert error.code == "NOT_REHEARSABLE"
    assert "fails" in error.message
    assert not_rehearsed(world, "rm").code == "UNKNOWN_COMMAND"


def test_a_real_command_ends_the_rehearsal_and_its_command(world):
    world.slow_down(4)
    errors = []
    thread = threading.Thread(target=lambda: errors.append(not_rehearsed(world)))
    thread.start()

    def current():
        heard = world.channel().heard(world.to)
        return heard and heard.rehearsals and heard.rehearsals.current == FIRST

    until(current)

    assert world.channel().run(command(world, "pg-stop")).exit_code == 0

    thread.join(20)
    assert [error.code for error in errors] == ["REHEARSAL_ENDED"]
    assert not world.rehearsed()
    assert world.starts() == 0
    assert not_rehearsed(world, "pg-check").code == "REHEARSAL_ENDED"


def test_a_new_epoch_ends_the_rehearsal(world):
    rehearse(world)
    world.channel().depose(world.to, EPOCH + 1)
    until(lambda: not world.rehearsed())
    error = not_rehearsed(world, "pg-check", epoch=EPOCH + 1, limit=10.0)
    assert error.code == "REHEARSAL_ENDED"


def test_the_member_says_what_can_be_rehearsed(world):
    channel = world.channel()
    rehearse(world)

    def told():
        heard = channel.heard(world.to)
        return heard.rehearsals if heard and heard.rehearsals.current else None

    able = until(told)
    assert able.not_isolated is None
    assert able.current == FIRST
    assert able.commands == {"pg-start", "pg-stop", "pg-check"}
    assert channel.heard(world.to).in_effect == ()
