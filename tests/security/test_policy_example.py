# SPDX-License-Identifier: Apache-2.0
"""The policy that is shipped for Mistral, against the rules of the installed Mistral."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from mistral import policies
from oslo_config import cfg
from oslo_policy import opts, policy

FILE = Path(__file__).parents[2] / "examples" / "mistral-policy.yaml"
HELPERS = {"failover_member"}
TARGET = {"project_id": "p", "user_id": "u"}
REGISTERED = [rule.name for rule in policies.list_rules()]
RULES = [name for name in REGISTERED if ":" in name]
CODE = [name for name in RULES if name.split(":")[0] in ("code_sources", "dynamic_actions")]
READING = [name for name in RULES if name.split(":")[1] in ("get", "list")]
PUBLISHING = [name for name in RULES if name.endswith(":publicize")]
CHANGING = [name for name in RULES if name not in (*READING, *PUBLISHING, *CODE)]


def caller(*roles: str, project: str = "p", is_admin: bool | None = None) -> dict[str, Any]:
    """A caller as Mistral describes it to the policy: is_admin follows from the role admin."""
    known = "admin" in roles if is_admin is None else is_admin
    return {"roles": list(roles), "project_id": project, "user_id": "c", "is_admin": known}


CALLERS = {
    "admin": caller("admin", "member", "reader"),
    "admin elsewhere": caller("admin", project="another"),
    "member": caller("member", "reader"),
    "reader": caller("reader"),
    "no role": caller(),
    "member elsewhere": caller("member", "reader", project="another"),
    "reader elsewhere": caller("reader", project="another"),
    "is_admin without a role": caller(is_admin=True),
    "the role admin without is_admin": caller("admin", "member", is_admin=False),
}


def enforcer(file: Path) -> policy.Enforcer:
    """Mistral's rules with a file."""
    conf = cfg.ConfigOpts()
    conf([], project="mistral", default_config_files=[])
    opts.set_defaults(conf)
    found = policy.Enforcer(conf, policy_file=str(file))
    found.register_defaults(policies.list_rules())
    found.load_rules()
    return found


@pytest.fixture(scope="module")
def ours() -> policy.Enforcer:
    return enforcer(FILE)


def may(enforcer: policy.Enforcer, rule: str, who: str) -> bool:
    return bool(enforcer.enforce(rule, TARGET, CALLERS[who]))


def test_every_name_in_it_is_a_rule_of_mistral() -> None:
    names = set(yaml.safe_load(FILE.read_text("utf-8")))

    assert names - HELPERS <= set(RULES)


def test_no_rule_is_looser_than_mistral_s_own(ours: policy.Enforcer, tmp_path: Path) -> None:
    empty = tmp_path / "policy.yaml"
    empty.write_text("{}")
    default = enforcer(empty)

    looser = [
        f"{rule} lets {who}"
        for rule in REGISTERED
        for who in CALLERS
        if may(ours, rule, who) and not may(default, rule, who)
    ]

    assert may(default, "workflows:create", "reader"), "the defaults were not asked"
    assert looser == []


def test_only_an_administrator_uploads_code_and_publishes(ours: policy.Enforcer) -> None:
    assert set(CODE) <= set(yaml.safe_load(FILE.read_text("utf-8")))  # whatever a default says
    for rule in (*CODE, *PUBLISHING):
        allowed = {who for who in CALLERS if may(ours, rule, who)}
        assert allowed == {"admin", "admin elsewhere", "is_admin without a role"}, rule


@pytest.mark.parametrize("rule", CHANGING)
def test_who_changes_anything_needs_the_role_member_in_the_project(
    ours: policy.Enforcer, rule: str
) -> None:
    assert not may(ours, rule, "reader")
    assert may(ours, rule, "member")
    assert may(ours, rule, "admin")
    assert not may(ours, rule, "member elsewhere")


def test_a_reader_may_still_look(ours: policy.Enforcer) -> None:
    for rule in ("executions:get", "executions:list", "workflows:get", "workflows:list"):
        assert may(ours, rule, "reader")
