# SPDX-License-Identifier: Apache-2.0
"""``failover emulator``: break things in the emulated cloud of a ``failover server --emulated``."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cliff.show import ShowOne

from mistral_failover.cli import connection
from mistral_failover.cli.arguments import GROUP, Arguments, argument
from mistral_failover.cli.base import for_people
from mistral_failover.model.text import counted

if TYPE_CHECKING:
    from mistral_failover.lab.emulator.client import EmulatorClient, Learned

# What each fault breaks, and what repairs it.
FAULTS = {
    "crash": ("server", "crash", "revive"),
    "hang": ("server", "hang", "thaw"),
    "app": ("server", "app", "revive"),
    "host": ("host", "power_off", "revive"),
    "compute": ("host", "compute_down", "revive"),
    "full": ("cloud", "full", "room again"),
}
_LASTING = 1_000_000  # times that a fault occurs
_ANY_NUMBER = {"instances": -1, "cores": -1, "ram": -1}
_ALARM = "server_lost"


class Break(Arguments, ShowOne):
    """Break a member of a group in the emulated cloud, which raises its alarm.

    crash: the guest dies; hang: the guest answers nothing but still writes; app: only the
    application dies; host: the host loses power, and nothing can prove that the member is off: the
    failover waits for 'failover confirm-fenced'; compute: only Nova's service on the host dies, the
    guest still runs; full: the member lives, but no further server can be made in the whole cloud,
    because the project's quota is used up and no host has room.

    Follow the result with 'failover watch GROUP' or 'failover status GROUP'. --repair ends the
    fault and starts a stopped server again; it repairs the host that was broken, although the
    member has moved. To give the member its role back, see 'failover failback --help'. Needs a
    'failover server --emulated' on this machine.
    """

    arguments = (
        GROUP,
        argument("member", help="the member's name"),
        argument(
            "--fault",
            choices=sorted(FAULTS),
            default="crash",
            help="the fault (default crash)",
        ),
        argument(
            "--repair",
            action="store_true",
            help="repair what that fault has broken; raises no alarm",
        ),
        argument("--no-alarm", action="store_true", help="break it without an alarm"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Inject the fault, and raise its alarm."""
        import requests

        from mistral_failover.lab.emulator.client import EmulatorClient, EmulatorError

        facts = connection.server_used(self.app) or connection.server_facts(self.app)
        if "emulator" not in facts:
            raise connection.CommandFailed(
                "This failover server acts in a real cloud, where 'emulator' breaks nothing. "
                "Start another one with --emulated and its own --state-dir. [NO_EMULATOR]"
            )
        target, fault, repairing = FAULTS[parsed_args.fault]
        done = repairing if parsed_args.repair else fault
        member = f"{parsed_args.group}/{parsed_args.member}"
        server = _server(facts, parsed_args.group, parsed_args.member)
        try:
            cloud = EmulatorClient(facts["emulator"])
            struck = [server]
            if target == "cloud":
                struck = ["all hosts"]
                _fill(cloud, full=not parsed_args.repair)
            elif target == "host" and parsed_args.repair:
                struck = _broken_for(cloud, member) or [_host(cloud, server)]
            elif target == "host":
                struck = [_host(cloud, server)]
                self._say_who_shares(cloud, struck[0], server)
            if target != "cloud":
                for each in struck:
                    cloud.fault(target, each, done, member=member)
                if parsed_args.repair:
                    _start(Path(facts["clouds_file"]), server)
            silent = parsed_args.repair or parsed_args.no_alarm or target == "cloud"
            alarm = None if silent else _alarm(cloud, facts, server)
        except EmulatorError as error:
            raise connection.CommandFailed(f"{error} {error.remedy} [{error.code}]") from None
        except requests.RequestException:
            raise connection.CommandFailed(
                "The emulated cloud does not answer. Restart the server. [NO_EMULATOR]"
            ) from None
        found = {
            "member": parsed_args.member,
            "server": server,
            target: ", ".join(struck),
            "done": done,
            "alarm": alarm or ("-" if for_people(parsed_args) else None),
        }
        return list(found), list(found.values())

    def _say_who_shares(self, cloud: EmulatorClient, host: str, server: str) -> None:
        """Say which other servers are on a host: no alarm comes for these."""
        others = sorted(each for each, guest in cloud.guests().items() if guest["host"] == host)
        others = [each for each in others if each != server]
        if others:
            self.app.stderr.write(
                f"Host {host} also has {counted(len(others), 'other server')}, of this group or of "
                f"others, without an alarm: {', '.join(others)}\n"
            )


class Lesson:
    """What the emulated servers of a group have learned of its file."""

    def __init__(self, app: Any, group: str) -> None:
        self._app, self._group = app, group
        self.kept = False
        self.learned: list[Learned] = []

    def keep(self) -> None:
        """Let them know it on, and say so."""
        self.kept = True
        self._tell("have learned")

    def tell(self) -> None:
        """Say what they would learn if the file were stored."""
        self._tell("would learn")

    def _tell(self, verb: str) -> None:
        if commands := [name for each in self.learned for name in each.commands]:
            self._app.stderr.write(
                f"The emulated agents of {self._group} {verb}: {', '.join(commands)}. On real "
                "members the agent's allow-list needs them.\n"
            )


@contextlib.contextmanager
def lesson(app: Any, group: str, document: Mapping[str, Any]) -> Iterator[Lesson]:
    """Let the emulated servers of a group's stack, without one all of them, run the commands of its
    activations, which on real members the agent's file allows, while the block lasts: a check of
    the file asks the agents. At its end they forget them again unless the lesson was kept.

    Servers that know one of an activation's commands do not learn the other, nor one that is almost
    the counterpart of the other: it is probably misspelt, and refused as on real members. Nothing
    happens in a real cloud, or while the stack is missing.

    An application that is given devices needs them, and writes to no others.
    """
    given = Lesson(app, group)
    facts = connection.server_used(app) or {}
    if "emulator" not in facts:
        yield given
        return
    import requests

    from mistral_failover.lab.emulator.client import EmulatorClient, EmulatorError

    cloud = EmulatorClient(facts["emulator"])
    try:
        for name, start, stop, devices in _activations(document):
            with contextlib.suppress(EmulatorError, requests.RequestException):
                start, stop = as_meant(start, stop)
                learned = cloud.add_application(
                    f"{name}-{group}",
                    start=start,
                    stop=stop,
                    needs_volume=devices,
                    told_only=devices,
                    stack=document.get("stack"),
                    unless_partly_known=True,
                )
                given.learned.append(learned)
        yield given
    finally:
        for each in () if given.kept else reversed(given.learned):
            with contextlib.suppress(EmulatorError, requests.RequestException):
                cloud.take_back(each)


def _activations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str, bool]]:
    """The name, the start and stop commands of each activation of a group file, and whether it is
    given devices."""
    for name, resource in document["resources"].items():
        properties = resource.get("properties", {})
        if resource["type"] == "activation" and isinstance(properties.get("stop"), str):
            devices = any(_is_device(value) for value in properties.values())
            yield name, properties["start"], properties["stop"], devices


_COUNTERPARTS = (("start", "stop"), ("up", "down"))
_ALIKE = 0.85
"""How alike two names are, of 1, of which one is a misspelt other."""


def as_meant(start: str, stop: str) -> tuple[str, str]:
    """Return the names of a start and a stop command, as in ``web-start`` and ``web-stop``; one
    that is almost the counterpart of the other (``web-stpo``) is that counterpart."""
    for begins, ends in _COUNTERPARTS:
        if begins in start and _is_almost(stop, wanted := start.replace(begins, ends)):
            return start, wanted
        if ends in stop and _is_almost(start, wanted := stop.replace(ends, begins)):
            return wanted, stop
    return start, stop


def _is_almost(name: str, wanted: str) -> bool:
    return name != wanted and SequenceMatcher(None, name, wanted).ratio() >= _ALIKE


def _is_device(value: Any) -> bool:
    return isinstance(value, dict) and list(value.get("get_attr", []))[1:] == ["device"]


def _fill(cloud: EmulatorClient, *, full: bool) -> None:
    """Let the project have no further server, or any number again."""
    if full:
        # One more than the servers that exist is always too many.
        cloud.configure(quota={**_ANY_NUMBER, "instances": len(cloud.guests())})
        cloud.api_fault("boot", "fail", times=_LASTING)
    else:
        cloud.configure(quota=_ANY_NUMBER)
        cloud.clear_api_faults()


def _broken_for(cloud: EmulatorClient, member: str) -> list[str]:
    """Return the hosts that were broken for a member and still are: it may have moved since."""
    hosts = cloud.status()["hosts"]
    return sorted(name for name, host in hosts.items() if member in host["broken_for"])


def _host(cloud: EmulatorClient, server: str) -> str:
    guest = cloud.guests().get(server)
    if guest is None:
        raise connection.CommandFailed(f"Server {server} has no guest any more. [NOT_FOUND]")
    return str(guest["host"])


def _start(clouds_file: Path, server: str) -> None:
    """Start a server that a fence has stopped, through Nova, as an operator would."""
    import openstack.connection
    from openstack import config
    from openstack.exceptions import SDKException

    from mistral_failover.server.emulated import CLOUD

    # Ignore what the environment says about another cloud.
    clouds = config.OpenStackConfig(config_files=[str(clouds_file)], load_envvars=False)
    region = clouds.get_one(CLOUD)
    try:
        compute = openstack.connection.Connection(config=region).compute
        found = compute.get_server(server)
        if found.status == "SHUTOFF":
            compute.start_server(found)
            compute.wait_for_server(found, interval=0.2, wait=60)
    except SDKException as error:
        raise connection.CommandFailed(
            f"The fault is repaired, but {server} could not be started: "
            f"{connection.with_full_stop(error)} Run the command with --repair again. [NOT_STARTED]"
        ) from None


def _server(facts: dict[str, Any], group: str, member: str) -> str:
    from mistral_failover.mistral.client import MistralError

    try:
        status = connection.of_server(facts).run_action("failover.status", {"group": group})
    except MistralError as error:
        told = connection.with_full_stop(error.message)
        raise connection.CommandFailed(f"{told} {error.remedy} [{error.code}]") from None
    rows = status["members"]
    servers = {row["name"]: row["server"] for row in rows}
    if not servers.get(member):
        raise connection.CommandFailed(
            f"{group} has no member {member} with a server. Members with a server: "
            f"{', '.join(sorted(servers)) or 'none yet'}. [UNKNOWN_MEMBER]"
        )
    return str(servers[member])


def _alarm(cloud: EmulatorClient, facts: dict[str, Any], server: str) -> str:
    """Have the cloud post Aodh's alarm to the webhook, as a sender that cannot sign; return its
    name."""
    from mistral_failover.errors import CodedError
    from mistral_failover.server import secret

    try:
        token = secret.read(Path(facts["secret_file"])).token
    except CodedError as error:
        raise connection.CommandFailed(f"{error} [{error.code}]") from None
    headers = {"Authorization": f"Bearer {token}"}
    cloud.alarm(facts["webhook"], server, alarm_name=_ALARM, headers=headers)
    return _ALARM
