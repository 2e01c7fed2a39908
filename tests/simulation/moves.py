# SPDX-License-Identifier: Apache-2.0
"""What happens to the world: one function for each kind, in `MOVES`.

Each draws what it needs from a source of its own, so that a play without some of its moves makes
the others alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from mistral_failover.actions import groups, orders, suspensions
from mistral_failover.lab.emulator import faults
from mistral_failover.runtime import process as product_process
from simulation.oracle import Oracle
from simulation.scheduler import Process
from simulation.wire import Kind, Trouble
from simulation.world import DOCUMENT, GROUP, MEMBERS, Executor, Project, World

Make = Callable[["Play", Random], None]
MOVES: dict[str, tuple[Make, int]] = {}
"""By name: what it does, and how often it is drawn."""


LASTS = 150.0
"""Seconds within which moves happen, at most."""


@dataclass
class Play:
    """A world, and who watches over it."""

    world: World
    oracle: Oracle
    heals_at: float = 0.0
    """When the world heals, at the earliest."""
    sweeps_at: float = 0.0
    """When Mistral's cron trigger runs again."""
    kept_off: set[str] = field(default_factory=set)
    """The hosts that a person keeps off, by their names: they do not come back by themselves."""

    def executor(self, random: Random) -> Executor | None:
        """Return an executor that Mistral gives work; None if there is none."""
        usable = [each for each in self.world.executors if each.usable]
        return random.choice(usable) if usable else None

    def later(self, seconds: float, work: Callable[[], object]) -> None:
        """Do something in the world in so many seconds; it may wait."""
        scheduler = self.world.scheduler

        def wait_and_work() -> None:
            scheduler.sleep(seconds)
            work()

        scheduler.spawn(scheduler.world, wait_and_work, "later")

    def on_executor(
        self,
        random: Random,
        name: str,
        work: Callable[[Executor], object],
        project: Project | None = None,
    ) -> None:
        """Have an executor do something for a project, as soon as there is one."""
        scheduler = self.world.scheduler

        def find_and_work() -> None:
            while (executor := self.executor(random)) is None:
                scheduler.sleep(1.0)
            executor.of(project or self.world.mine).begin(name, work)

        scheduler.spawn(scheduler.world, find_and_work, name)

    def order(
        self, random: Random, action: Any, words: str = "", project: Project | None = None
    ) -> None:
        """Have an executor carry out an operator's order."""
        said = words or f"{type(action).__name__} {getattr(action, 'to', None) or ''}".strip()
        work = lambda each: self.world.order(each, action, said)  # noqa: E731
        self.on_executor(random, "order", work, project)

    def alarm(self, random: Random, member: str, *, over: bool = False) -> None:
        """Have an executor take an alarm about a member; ``over``: that it has ended."""
        self.on_executor(random, "alarm", lambda each: self.world.alarm(each, member, over=over))


def _move(weight: int) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        MOVES[make.__name__] = (make, weight)
        return make

    return register


# -- processes


@_move(6)
def killed(play: Play, random: Random) -> None:
    """An executor dies wherever it is; another one begins."""
    if (executor := play.executor(random)) is not None:
        _dies(play, executor, random.uniform(0.0, 10.0))


@_move(4)
def frozen(play: Play, random: Random) -> None:
    """An executor freezes, and goes on later."""
    if (executor := play.executor(random)) is not None:
        play.world.scheduler.freeze(executor.process, random.choice((3.0, 12.0, 29.0, 31.0, 70.0)))


@_move(3)
def stopped(play: Play, random: Random) -> None:
    """An executor is stopped as for an upgrade: it hands its work back."""
    if (executor := play.executor(random)) is None:
        return
    scheduler = play.world.scheduler
    _replace(play, executor, random.uniform(0.0, 3.0))

    def stop(_executor: Executor) -> None:
        product_process.hand_back(product_process.STOP_LIMIT)
        scheduler.kill(executor.process)

    executor.begin("stop", stop)


def _dies(play: Play, executor: Executor, seconds: float) -> None:
    _replace(play, executor, seconds)
    play.world.scheduler.kill(executor.process)


def _replace(play: Play, executor: Executor, seconds: float) -> None:
    world = play.world
    world.executors.remove(executor)

    def begin() -> None:
        if world.spare:
            world.executors.append(world.spare.pop(0))

    play.later(seconds, begin)


_POINTS = (
    *("call.before", "call.after", "check.after", "conclude.before", "conclude.after"),
    *("renew.before", "renew.after", "start.after", "link.after", "work.next", "sweep.after"),
    *("attach.before", "attach.after", "detach.before", "detach.after", "stop.after"),
    *("command.before", "command.after", "patch.before", "patch.after", "depose.after"),
)


@_move(16)
def ambushed(play: Play, random: Random) -> None:
    """The next executor that reaches a fault point dies there, freezes, or is cut off."""
    world, point = play.world, random.choice(_POINTS)
    what, seconds = random.choice(("dies", "freezes", "freezes", "is cut off")), 0.0
    if what != "dies":
        seconds = random.choice((5.0, 29.0, 31.0, 45.0, 90.0))

    def strike(process: Process) -> None:
        if (executor := world.executor_of(process)) is None:
            return
        world.tell(f"at {point}: {what} {seconds or ''}")
        if what == "dies":
            _dies(play, executor, 5.0)
        elif what == "freezes":
            world.scheduler.freeze(process, seconds)
        else:
            until = world.scheduler.now + seconds
            world.wire.troubles.append(Trouble(Kind.SWALLOWED, process, "", 10**6, until))

    world.ambushes[point] = strike


_REQUESTS = ("attach", "detach", "stop", "command", "patch")


@_move(14)
def ambushed_at_a_request(play: Play, random: Random) -> None:
    """The next executor that is about to send something freezes until its lease is over, or dies
    right after it."""
    world, request = play.world, random.choice(_REQUESTS)
    freezes, seconds = random.random() < 0.6, random.choice((40.0, 60.0, 90.0))

    def strike(process: Process) -> None:
        if (executor := world.executor_of(process)) is None:
            return
        world.tell(f"{process.name} {'freezes before' if freezes else 'dies after'} its {request}")
        if freezes:
            world.scheduler.freeze(process, seconds)
        else:
            _dies(play, executor, 5.0)

    world.ambushes[f"{request}.before" if freezes else f"{request}.after"] = strike


@_move(8)
def frozen_with_an_outcome(play: Play, random: Random) -> None:
    """The next executor freezes when its step is over, and is not recorded yet; another one takes
    the step over in the meantime."""
    world, seconds = play.world, random.choice((45.0, 60.0, 90.0))

    def strike(process: Process) -> None:
        if world.executor_of(process) is not None:
            world.tell(f"freezes for {seconds:.0f} s with an outcome")
            world.scheduler.freeze(process, seconds)

    world.ambushes["conclude.before"] = strike


@_move(10)
def delivered_twice(play: Play, _random: Random) -> None:
    """Mistral gives the next chain to two executors: a message that was delivered again."""
    play.world.delivered_twice += 1


@_move(5)
def clock_steps(play: Play, random: Random) -> None:
    """The wall clock of an executor's host is set to another time; perhaps back again, later."""
    if (executor := play.executor(random)) is None:
        return
    process, seconds = executor.process, random.choice((-86400.0, -45.0, -5.0, 5.0, 45.0, 86400.0))
    play.world.tell(f"the clock of {process.name} steps by {seconds:.0f} s")
    process.clock = seconds

    def set_right() -> None:
        play.world.tell(f"the clock of {process.name} is set right")
        process.clock = 0.0

    if random.random() < 0.5:
        play.later(random.uniform(5.0, 60.0), set_right)


# -- the network and the store


@_move(5)
def cut_off(play: Play, random: Random) -> None:
    """An executor does not reach the cloud for a while."""
    if (executor := play.executor(random)) is not None:
        kind = random.choice((Kind.UNSENT, Kind.SWALLOWED))
        until = play.world.scheduler.now + random.uniform(5.0, 60.0)
        play.world.wire.troubles.append(Trouble(kind, executor.process, "", 10**6, until))


_WHAT = (
    "POST .*os-volume_attachments",
    "DELETE .*os-volume_attachments",
    "PATCH ",
    "POST .*/action",
    "POST .*/commands",
    "(POST|PATCH|PUT|DELETE) ",
    "GET .*/volumes/",
    "GET .*/servers/",
    "GET .*/stacks/",
    "GET ",
    "",
)


@_move(14)
def troubled(play: Play, random: Random) -> None:
    """Something happens to the next requests of a kind."""
    for _ in range(random.choice((1, 1, 2, 4))):
        play.world.wire.troubles.append(
            Trouble(
                random.choice(list(Kind)),
                None,
                random.choice(_WHAT),
                random.choice((1, 1, 2, 5)),
                play.world.scheduler.now + random.choice((5.0, 30.0, 200.0)),
                random.uniform(0.0, 45.0),
            )
        )


_DECIDES = (
    "GET .*/servers/[^/]*$",
    "GET .*/os-volume_attachments",
    "GET .*/os-instance-actions",
    "GET .*/volumes/[^/]*$",
    "GET .*/stacks",
    "(POST|PATCH|DELETE) ",
)


@_move(8)
def stranger_answers(play: Play, random: Random) -> None:
    """Another service, behind a wrong address, answers some of what something is decided by."""
    until = play.world.scheduler.now + random.choice((30.0, 200.0))
    of, times = random.choice(_DECIDES), random.choice((1, 2, 4, 8))
    play.world.wire.troubles.append(Trouble(Kind.FOREIGN, None, of, times, until))


@_move(12)
def late_and_overtaken(play: Play, random: Random) -> None:
    """A request of a move arrives long after its sender has given up. In between the sender dies,
    or an operator wants something else: what the request takes away, or any other member."""
    kinds = (*["DELETE .*attachments"] * 3, "POST .*att", "PATCH ", "POST .*/commands")
    world, of = play.world, random.choice(kinds)
    dies, wants = random.choice(((1, 0), (0, 1), (1, 1), (1, 1), (1, 1)))
    after = random.uniform(0.5, 10.0)

    def meanwhile(process: Process, asked: str) -> None:
        if (executor := world.executor_of(process)) is None:
            return
        if wants:
            servers = world.mine.servers.items()
            names = [member for member, server in servers if server in asked]
            to = names[0] if asked.startswith("DELETE") and names else random.choice(MEMBERS)
            overtaken = orders.Begin(GROUP, to=to, because="an operator wants something else")
            play.later(after, lambda: play.order(random, overtaken))
        if dies:
            play.later(random.uniform(0.0, 2.0), lambda: dies_now(executor))

    def dies_now(executor: Executor) -> None:
        if executor in world.executors:
            world.tell(f"{executor.process.name} dies")
            _dies(play, executor, 5.0)

    until, seconds = world.scheduler.now + LASTS, random.choice((5.0, 35.0, 40.0, 45.0, 48.0))
    world.wire.troubles.append(Trouble(Kind.LATE, None, of, 1, until, seconds, meanwhile))
    elsewhere = [each for each in MEMBERS if each not in world.mine.serving()]
    to = random.choice(elsewhere or MEMBERS)
    play.order(random, orders.Switchover(GROUP, to=to, because="an operator wants it"))


@_move(3)
def store_away(play: Play, random: Random) -> None:
    """The state store does not answer an executor, or any; or it refuses changes."""
    world = play.world
    kind = random.choice((world.store.away, world.store.away, world.store.read_only))
    until = world.scheduler.now + random.choice((1.0, 10.0, 35.0))
    one = play.executor(random)
    for each in world.executors:
        if one is None or random.random() < 0.5 or each is one:
            kind[each.process.name] = until


@_move(4)
def commit_unanswered(play: Play, random: Random) -> None:
    """A commit takes effect, and its process does not hear of it."""
    if (executor := play.executor(random)) is not None:
        play.world.store.unanswered[executor.process.name] = random.choice((1, 1, 3))


# -- the cloud


@_move(8)
def api_fault(play: Play, random: Random) -> None:
    """A service takes a request, and something goes wrong with it."""
    operation = random.choice(("attach", "detach", "stack_patch", "stop", "any"))
    kinds = ["error", "lost", "mute", "drop", "hold", "gateway"]
    more = {"detach": ["fail", "torn", "unsent"], "attach": ["fail", "queue"]}
    kind = random.choice(kinds + more.get(operation, [] if operation == "any" else ["fail"]))
    faults.inject(
        play.world.emulation,
        {
            "operation": operation,
            "fault": kind,
            "status": random.choice((500, 502, 503, 504)),
            "seconds": random.choice((3.0, 15.0, 25.0, 50.0)),
            "times": random.choice((1, 1, 2)),
        },
    )


# -- guests, hosts


@_move(8)
def guest_fails(play: Play, random: Random) -> None:
    """A guest crashes or hangs; mostly an alarm tells, perhaps twice."""
    member = _member(play, random)
    fault = random.choice(("crash", "crash", "hang"))
    _strike(play, member, fault)
    back = {"crash": "revive", "hang": "thaw"}.get(fault)
    if back and random.random() < 0.5:
        play.later(random.uniform(1.0, 90.0), lambda: _strike(play, member, back))
    _alarms(play, random, member)


@_move(6)
def lost_in_mid_move(play: Play, random: Random) -> None:
    """From whom the group is moved fails when it has given away what it had, and an alarm tells."""
    world, serving = play.world, play.world.mine.serving()
    if not serving:
        return
    member, point = serving[0], random.choice(("attach.before", "attach.after", "patch.before"))
    fault, seconds = random.choice(("crash", "crash", "hang")), random.uniform(0.1, 1.0)

    def fails() -> None:
        _strike(play, member, fault)
        play.alarm(random, member)

    world.ambushes[point] = lambda _process: play.later(seconds, fails)
    to = random.choice([each for each in MEMBERS if each != member])
    play.order(random, orders.Switchover(GROUP, to=to, because="an operator wants it"))


@_move(4)
def confirmed_and_lost_again(play: Play, random: Random) -> None:
    """A member is lost, a person switches its host off and confirms that; it recovers, serves
    again, and its host falls silent while its guest runs on."""
    world, serving = play.world, play.world.mine.serving()
    if not serving:
        return
    member, now = serving[0], world.scheduler.now
    play.heals_at = max(play.heals_at, now + 200.0)

    def story() -> None:
        if (host := _strike_host(play, member, "power_off")) is None:
            return
        play.kept_off.add(host)
        lost = orders.Begin(GROUP, lost=[member], because="its host is off")
        play.order(random, lost)
        world.scheduler.sleep(random.uniform(1.0, 5.0))
        confirm = orders.ConfirmFenced(GROUP, member, "I switched it off")
        play.order(random, confirm, "confirm")
        for _ in range(100):  # it stays off until another member serves
            world.scheduler.sleep(1.0)
            if set(world.mine.serving()) - {member}:
                break
        play.kept_off.discard(host)
        revive_host(play, host)
        world.scheduler.sleep(10.0)
        _act(play, member, "start")  # its fence may have stopped it
        world.scheduler.sleep(20.0)  # until its agent is heard
        back = orders.Begin(GROUP, to=member, lost=[], recovered=[member], because="it is back")
        play.order(random, back)
        for _ in range(60):
            world.scheduler.sleep(1.0)
            if member in world.mine.serving():
                _strike_host(play, member, "compute_down")
                play.alarm(random, member)
                return

    play.later(0.0, story)


@_move(4)
def started_at_its_stop(play: Play, random: Random) -> None:
    """An alarm about what serves; a person starts the server as soon as its fence stopped it."""
    world, serving = play.world, play.world.mine.serving()
    if not serving:
        return
    server = world.mine.servers[serving[0]]

    def starts() -> None:
        for _ in range(500):
            found = world.emulation.state.servers.get(server)
            if found is None or found.status == "SHUTOFF":
                _act(play, serving[0], "start")
                return
            world.scheduler.sleep(0.01)

    world.ambushes["stop.after"] = lambda _process: play.later(0.0, starts)
    play.alarm(random, serving[0])


@_move(4)
def detach_torn(play: Play, random: Random) -> None:
    """A compute service dies at the end of a planned detach: Cinder has let the volume go, and Nova
    has not."""
    faults.inject(play.world.emulation, {"operation": "detach", "fault": "torn", "times": 1})
    elsewhere = [each for each in MEMBERS if each not in play.world.mine.serving()]
    to = random.choice(elsewhere or MEMBERS)
    play.order(random, orders.Switchover(GROUP, to=to, because="an operator wants it"))


@_move(4)
def application_ends(play: Play, random: Random) -> None:
    """Only the application dies, in a guest that runs; mostly no alarm tells."""
    member = _member(play, random)
    _strike(play, member, "app")
    if random.random() < 0.3:
        _alarms(play, random, member)


@_move(8)
def host_fails(play: Play, random: Random) -> None:
    """A host loses its power or its compute service; it may come back at any time."""
    member, fault = _member(play, random), random.choice(("power_off", "power_off", "compute_down"))
    if (host := _strike_host(play, member, fault)) is None:
        return
    if random.random() < 0.6:
        play.later(random.uniform(1.0, 120.0), lambda: revive_host(play, host))
    _alarms(play, random, member)


def _strike_host(play: Play, member: str, fault: str) -> str | None:
    """Strike the host of a member; return its name, None if the member has no server."""
    server = play.world.emulation.state.servers.get(play.world.mine.servers[member])
    if server is None:
        return None
    play.world.tell(f"host of {member}: {fault}")
    play.world.strike(faults.strike_host, server.host, fault)
    return server.host


def revive_host(play: Play, host: str) -> None:
    """A host comes back, unless a person keeps it off."""
    if host not in play.kept_off:
        play.world.tell("a host comes back")
        play.world.strike(faults.strike_host, host, "revive")


def _member(play: Play, random: Random) -> str:
    serving = play.world.mine.serving()
    return random.choice(serving) if serving and random.random() < 0.7 else random.choice(MEMBERS)


_FROM = {
    "app": "healthy",
    "crash": "healthy",
    "hang": "healthy",
    "revive": "crashed",
    "thaw": "hung",
}
"""In which condition a guest is to which that can happen."""


def _strike(play: Play, member: str, fault: str) -> None:
    server = play.world.mine.servers[member]
    guest = play.world.emulation.state.guests.get(server)
    if guest is not None and guest.condition == _FROM[fault]:
        play.world.tell(f"guest of {member}: {fault}")
        play.world.strike(faults.strike_server, server, fault)


def _alarms(play: Play, random: Random, member: str) -> None:
    for _ in range(random.choice((0, 1, 1, 1, 2))):
        seconds = random.uniform(0.5, 30.0)
        play.later(
            seconds,
            lambda: play.alarm(random, member),
        )


@_move(5)
def left_alone(play: Play, random: Random) -> None:
    """After the last move the world is left as it is for minutes. Perhaps what serves ends then,
    without an alarm; perhaps no sweep runs either."""
    now = play.world.scheduler.now
    play.heals_at = now + 300.0
    if random.random() < 0.5:
        play.sweeps_at = play.heals_at
    fault = random.choice(("app", "crash", "hang", "power_off", "power_off", "power_off", ""))

    def ends() -> None:
        member = _member(play, random)
        if fault == "power_off":
            _strike_host(play, member, fault)
        elif fault:
            _strike(play, member, fault)

    play.later(random.uniform(5.0, 60.0), ends)


# -- people


@_move(3)
def false_alarm(play: Play, random: Random) -> None:
    """An alarm about a member that may be well."""
    member = random.choice(MEMBERS)
    play.alarm(random, member)


@_move(5)
def alarm_ends(play: Play, random: Random) -> None:
    """The end of an alarm is reported, though it may never have begun here."""
    play.alarm(random, random.choice(MEMBERS), over=True)


@_move(4)
def started_after_its_fence(play: Play, random: Random) -> None:
    """An alarm about what serves; its fence is done, and the executor that is about to release the
    volume freezes. Meanwhile a person starts the server."""
    world, serving = play.world, play.world.mine.serving()
    if not serving:
        return
    seconds = random.choice((60.0, 90.0))

    def strike(process: Process) -> None:
        play.later(random.uniform(0.0, 10.0), lambda: _act(play, serving[0], "start"))
        world.scheduler.freeze(process, seconds)

    world.ambushes["detach.before"] = strike
    play.heals_at = max(play.heals_at, world.scheduler.now + seconds + 60.0)
    play.alarm(random, serving[0])


@_move(4)
def suspended(play: Play, random: Random) -> None:
    """An operator holds the group's alarms, and lets them count again, or forgets it. Meanwhile
    what serves is said to be lost."""
    held: Any = random.choice(
        (
            suspensions.Pause(GROUP, "a person works there"),
            suspensions.Maintenance(GROUP, "work is planned", minutes=random.choice((1, 5))),
        )
    )
    play.order(random, held)
    serving = play.world.mine.serving()
    if serving and random.random() < 0.7:
        play.later(random.uniform(1.0, 10.0), lambda: play.alarm(random, serving[0]))
    if random.random() < 0.7:
        resumed = suspensions.Resume(GROUP, "the work is done")
        play.later(random.uniform(5.0, 60.0), lambda: play.order(random, resumed))


@_move(4)
def redefined(play: Play, random: Random) -> None:
    """The group gets another definition, which is brought into force now or by the next goal."""
    ladder = random.choice((["quiesce", "stop", "confirm"], ["stop", "confirm"]))
    play.oracle.agents_prove |= "quiesce" in ladder
    play.order(random, groups.Define({**DOCUMENT, "fence": ladder}), f"fence by {ladder}")
    if random.random() < 0.7:
        begin = orders.Begin(GROUP, lost=[], definition="defined", because="as it is defined")
        play.later(random.uniform(0.5, 5.0), lambda: play.order(random, begin))


@_move(9)
def ordered(play: Play, random: Random) -> None:
    """An operator orders a move, or the way back."""
    to = random.choice((None, *MEMBERS))
    action: Any = random.choice(
        (
            orders.Begin(GROUP, to=to, because="an operator wants it"),
            orders.Switchover(GROUP, to=to, because="an operator wants it"),
            orders.Rollback(GROUP, because="an operator wants it"),
        )
    )
    play.order(random, action)


@_move(7)
def neighbour_moves(play: Play, random: Random) -> None:
    """The other project moves its group, or has an alarm about it."""
    to, ordered_one = random.choice(MEMBERS), random.random() < 0.6
    action = orders.Begin(GROUP, to=to, because="a neighbour wants it")

    def work(each: Executor) -> None:
        if ordered_one:
            play.world.order(each, action, f"to {to}")
        else:
            play.world.alarm(each, to)

    play.on_executor(random, "neighbour", work, play.world.neighbour)


@_move(6)
def rehearsed(play: Play, random: Random) -> None:
    """Somebody rehearses a failover."""
    play.on_executor(random, "rehearsal", play.world.rehearse)


_BY_HAND = {
    "stop": {"os-stop": None},
    "start": {"os-start": None},
    "reboot": {"reboot": {"type": "HARD"}},
    "pause": {"pause": None},
    "unpause": {"unpause": None},
    "resize": {"resize": {"flavorRef": "m1.small"}},
    "confirm": {"confirmResize": None},
}


@_move(5)
def by_hand(play: Play, random: Random) -> None:
    """A person does the ordinary with a server, and undoes it later or not."""
    member = _member(play, random)
    what = random.choice(("stop", "reboot", "pause", "delete", "resize"))
    _act(play, member, what)
    undo = {"stop": "start", "pause": "unpause", "resize": "confirm"}.get(what)
    if undo:
        play.later(random.uniform(5.0, 60.0), lambda: _act(play, member, undo))


def _act(play: Play, member: str, what: str) -> None:
    path = f"/compute/v2.1/servers/{play.world.mine.servers[member]}"
    if what == "delete":
        # Of a server that writes on a host that Nova does not reach, Cinder lets go what it has.
        play.oracle.forgiven.add("write_to_lost_volume")
        by_api(play, "DELETE", path, None)
    else:
        by_api(play, "POST", f"{path}/action", _BY_HAND[what])


def by_api(play: Play, method: str, path: str, body: Any) -> None:
    """Have a person send a request, at once."""
    play.later(0.0, lambda: play.world.request(method, path, body))


@_move(5)
def deleted_out_of_reach(play: Play, random: Random) -> None:
    """A host falls silent while its guests run on. A person deletes the server that serves there,
    which Nova then forgets, and an alarm tells."""
    world, serving = play.world, play.world.mine.serving()
    if not serving or _strike_host(play, serving[0], "compute_down") is None:
        return
    member, silent = serving[0], random.uniform(60.0, 90.0)  # until Nova sees it
    play.heals_at = world.scheduler.now + silent + 60.0
    play.later(silent, lambda: _act(play, member, "delete"))
    play.later(silent + 5.0, lambda: play.alarm(random, member))


@_move(3)
def stack_by_hand(play: Play, _random: Random) -> None:
    """Somebody updates the stack, with the parameter as it was."""
    play.oracle.forgiven.add("still updated")
    for stack in list(play.world.emulation.state.stacks.values()):
        if stack.project_id == play.world.mine.id and not stack.deleted:
            path = f"/orchestration/v1/{stack.project_id}/stacks/{GROUP}/{stack.id}"
            by_api(play, "PATCH", path, {"parameters": {}})


# -- the end


def heal(play: Play) -> None:
    """From now on the world is healthy: everything that can come back does."""
    world = play.world
    emulation = world.emulation
    world.tell("the world heals")
    world.wire.troubles.clear()
    world.ambushes.clear()
    play.kept_off.clear()
    world.delivered_twice = 0
    world.store.away.clear()
    world.store.read_only.clear()
    world.store.unanswered.clear()
    emulation.state.api_faults.clear()
    for name in list(emulation.state.hosts):
        play.world.strike(faults.strike_host, name, "revive")
    for server, guest in list(emulation.state.guests.items()):
        if guest.condition == "hung":
            play.world.strike(faults.strike_server, server, "thaw")
        elif guest.condition == "crashed":
            play.world.strike(faults.strike_server, server, "revive")
    while len(world.executors) < 2 and world.spare:
        world.executors.append(world.spare.pop(0))
    for each in world.executors:
        each.process.frozen_until = min(each.process.frozen_until, world.scheduler.now)
        each.process.clock = 0.0
