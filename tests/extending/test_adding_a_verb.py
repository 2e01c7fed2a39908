# SPDX-License-Identifier: Apache-2.0
"""A verb is one file and its entry points: one of the verb, and one for each way to give it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import pytest
from cliff.commandmanager import CommandManager
from mistral_lib.actions import Result
from mistral_lib.utils import inspect_utils

from mistral_failover.actions import orders
from mistral_failover.cli import osc
from mistral_failover.cli.main import FailoverApp
from mistral_failover.cli.verbs import VerbCommand
from mistral_failover.model.verbs import verb_kinds
from mistral_failover.runtime.request import Request
from mistral_failover.store import incidents
from support.commands import failover
from support.packages import Install
from support.pages import ROOT
from support.ui_answers import Answers, plan, status
from ui.conftest import Opened, opened

sys.path.insert(0, str(ROOT / "docs" / "_ext"))
import from_code  # noqa: E402

__all__ = ["opened"]

DRAIN = '''
from mistral_failover.model.verbs import Among, Input
from mistral_failover.orders.verbs import Verb

class Drain(Verb):
    """Move every role away from a member.

    It does no more than that.
    """

    action = "house.drain"
    inputs = {
        "member": Input("the member to empty", "MEMBER", among=Among.MEMBERS, label="Empty"),
        "rack": Input("the rack that is worked on", "RACK", label="Rack"),
    }
    because = "drained by hand"
    changes = "moves all roles of a member"

    def derive(self, request, order, *, remember):
        from mistral_failover.model.errors import NoEligibleMember
        from mistral_failover.model.order import Order
        from mistral_failover.orders import switchover

        if order.own("rack") == "r-0":
            raise NoEligibleMember("rack r-0 has no neighbour", "Name another rack.", {})
        move = Order("switchover", more={"holder": order.member})
        return switchover.goal_function(request, move, remember=remember)
'''
ENTRY_POINTS = {
    "mistral_failover.verbs": "drain = house_drain:Drain",
    "mistral.actions": "house.drain = mistral_failover.actions.orders:Drain",
    "failover.cli": "drain = mistral_failover.cli.verbs:Drain",
    "openstack.failover.v1": "failover_drain = mistral_failover.cli.verbs:Drain",
}


@pytest.fixture(autouse=True)
def house(install: Install) -> None:
    """A package with the verb ``drain``."""
    install({"house_drain.py": DRAIN}, ENTRY_POINTS)


def test_its_action_has_its_inputs_checks_them_and_gives_the_order_once(
    protect: Callable[..., Any],
) -> None:
    (point,) = [p for p in entry_points(group="mistral.actions") if p.name == "house.drain"]
    action = point.load()
    group = protect()
    group.order(orders.Begin(group.name, lost=[]))

    wrong = group.ask(action(group.name, rack=7))
    answer = group.order(action(group.name, member="db_a", rack="r-1"))
    again = group.done(action(group.name, member="db_a"))

    inputs = "group, member=null, rack=null, because=null"
    assert inspect_utils.get_arg_list_as_str(action.__init__) == inputs
    assert isinstance(wrong, Result)
    assert (wrong.error["code"], "rack" in wrong.error["message"]) == ("BAD_INPUT", True)
    assert group.status()["roles"] == {"active": "db_b"}
    assert again["sentence"].endswith("nothing to do")
    store = Request(group.state, group.context()).store
    order = store.reading(lambda tx: incidents.get(tx, answer["incident"])).order
    assert (order.verb, order.inputs) == ("drain", {"member": "db_a", "rack": "r-1"})


def test_a_plan_shows_it_and_starts_it(protect: Callable[..., Any]) -> None:
    group = protect()
    group.order(orders.Begin(group.name, lost=[]))

    planned = group.plan(verb="drain", member="db_a", rack="r-1")
    refused = group.ask(orders.Plan(group.name, verb="drain", rack="r-0"))
    strange = group.ask(orders.Plan(group.name, verb="failover", rack="r-1"))
    group.start(planned["plan"])

    assert (planned["verb"], planned["roles"]) == ("drain", {"active": "db_b"})
    assert planned["inputs"] == {"member": "db_a", "rack": "r-1"}
    assert refused.error["code"] == "NO_ELIGIBLE_MEMBER"
    assert "rack: failover has no such input" in strange.error["message"]
    assert group.status()["roles"] == {"active": "db_b"}


def test_the_program_lists_it_with_its_options_and_completes_them() -> None:
    listed = failover("--help").stdout
    helped = " ".join(failover("help", "drain").stdout.split())
    planning = " ".join(failover("plan", "--help").stdout.split())
    completed = failover("complete", "--name", "failover", "--shell", "bash").stdout

    assert "drain          Move every role away from a member\n" in listed
    assert "It does no more than that." in helped
    assert "--rack RACK the rack that is worked on" in helped
    assert "--dry-run" in helped
    assert "--rack RACK for drain: the rack that is worked on" in planning
    assert "drain" in planning.partition("--verb {")[2].partition("}")[0]
    assert "cmds_drain='" in completed
    assert "--rack" in completed


def test_the_openstack_client_has_it() -> None:
    manager = CommandManager(f"openstack.{osc.API_NAME}.v{osc.DEFAULT_API_VERSION}")

    command, name, left = manager.find_command(["failover", "drain", "payments"])

    assert (command.__name__, name, left) == ("Drain", "failover drain", ["payments"])


def test_its_command_starts_the_plan_because_it_has_no_workflow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command, _, _ = CommandManager("failover.cli").find_command(["drain"])
    asked: list[tuple[str, Any]] = []

    def run_action(self: Any, action: str, **inputs: Any) -> Any:
        asked.append((action, inputs))
        return plan(plan="p-1")

    def follow(app: Any, workflow: str, inputs: Any, **how: Any) -> Any:
        asked.append((workflow, inputs))
        return {"state": "SUCCESS"}

    monkeypatch.setattr(VerbCommand, "run_action", run_action)
    monkeypatch.setattr("mistral_failover.cli.order.follow", follow)
    drain = command(FailoverApp(), None)
    words = ["payments", "--member", "db_a", "--because", "work"]

    drain.take_action(drain.get_parser("drain").parse_args(words))

    inputs = {"group": "payments", "verb": "drain", "member": "db_a"}
    assert asked == [
        ("failover.plan", inputs),
        ("failover.start_plan", {"plan": "p-1", "because": "work"}),
    ]


def test_the_web_page_plans_it(opened: Opened) -> None:
    answers = Answers(plan=plan(verb="drain"), status=status())

    assert opened(answers).get("/plan?group=payments").status_code == 200, "nothing chosen yet"
    page = opened(answers).get("/plan?group=payments&verb=drain&member=db_a&rack=r-1").text

    about = {"group": "payments", "verb": "drain", "member": "db_a", "rack": "r-1"}
    assert ("failover.plan", about) in answers.asked
    assert "<option selected>drain</option>" in page
    assert "Empty (drain)" in page
    assert '<input name="rack" value="r-1">' in page


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ("plannable = False", "neither a workflow nor a plan"),
        ('inputs = {"plan": Input("a plan")}', "input plan"),
        ('action = "house.begin"', "ends like that of failover"),
    ],
)
def test_one_that_can_not_work_is_left_out_and_named(
    install: Install, caplog: pytest.LogCaptureFixture, declared: str, why: str
) -> None:
    lines = DRAIN.replace('    changes = "moves all roles of a member"', f"    {declared}\n")
    assert lines != DRAIN
    install({"house_odd.py": lines}, {"mistral_failover.verbs": "odd = house_odd:Drain"})

    assert "odd" not in verb_kinds()
    assert why in caplog.text


def test_the_documentation_lists_it() -> None:
    shown = "| `drain` | `house.drain` | `member`, `rack` | moves all roles of a member |"
    assert shown in from_code._installed()
