# SPDX-License-Identifier: Apache-2.0
"""The policy that is shipped for Mistral, against the rules of the installed Mistral."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from mistral import policies
from oslo_config import cfg
from oslo_policy import opts, policy

FILE = Path(__file__).parents[2] / "examples" / "mistral-policy.yaml"
HELPERS = {"failover_member"}
PROJECT = {"project_id": "p", "user_id": "u"}
RULES = [rule.name for rule in policies.list_rules() if ":" in rule.name]
READING = [name for name in RULES if name.split(":")[1] in ("get", "list")]
PUBLISHING = [name for name in RULES if name.endswith(":publicize")]
CHANGING = [name for name in RULES if name not in (*READING, *PUBLISHING)]


@pytest.fixture(scope="module")
def enforcer() -> policy.Enforcer:
    """Mistral's rules with the file."""
    conf = cfg.ConfigOpts()
    conf([], project="mistral", default_config_files=[])
    opts.set_defaults(conf)
    found = policy.Enforcer(conf, policy_file=str(FILE))
    found.register_defaults(policies.list_rules())
    found.load_rules()
    return found


def may(enforcer: policy.Enforcer, rule: str, *roles: str, project: str = "p") -> bool:
    """Whether a user with these roles in a project may do this in the project p."""
    who = {"roles": list(roles), "project_id": project, "is_admin": "admin" in roles}
    return bool(enforcer.enforce(rule, PROJECT, who))


def test_every_name_in_it_is_a_rule_of_mistral() -> None:
    names = set(yaml.safe_load(FILE.read_text("utf-8")))

    assert names - HELPERS <= set(RULES)


@pytest.mark.parametrize("rule", CHANGING)
def test_who_changes_anything_needs_the_role_member_in_the_project(
    enforcer: policy.Enforcer, rule: str
) -> None:
    assert not may(enforcer, rule, "reader")
    assert may(enforcer, rule, "member", "reader")
    assert may(enforcer, rule, "admin")
    assert not may(enforcer, rule, "member", project="another")


@pytest.mark.parametrize("rule", PUBLISHING)
def test_only_an_administrator_publishes(enforcer: policy.Enforcer, rule: str) -> None:
    assert not may(enforcer, rule, "member", "reader")
    assert may(enforcer, rule, "admin")


def test_a_reader_may_still_look(enforcer: policy.Enforcer) -> None:
    for rule in ("executions:get", "executions:list", "workflows:get", "workflows:list"):
        assert may(enforcer, rule, "reader")
