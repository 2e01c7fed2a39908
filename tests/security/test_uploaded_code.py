# SPDX-License-Identifier: Apache-2.0
"""The doctor finds a Mistral to which users of a project may upload Python code. With the real
Mistral and its real policy."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from keystoneauth1.session import Session

from mistral_failover.cloud.errors import CloudError
from mistral_failover.doctor import mistral as checks
from mistral_failover.doctor.checks import Finding
from mistral_failover.lab.testing.engine import TestEngine
from mistral_failover.mistral import in_process
from mistral_failover.mistral.api import Mistral
from mistral_failover.mistral.client import MistralClient, MistralError

EXAMPLE = Path(__file__).parents[2] / "examples" / "mistral-policy.yaml"
MEMBER = "role:member and project_id:%(project_id)s"
OPEN = {
    f"{what}:{verb}": MEMBER
    for what in ("code_sources", "dynamic_actions")
    for verb in ("create", "update", "delete")
}
Look = Callable[..., list[Finding]]


@pytest.fixture
def look(mistral: TestEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Look]:
    """What the doctor says, by the rules of a policy and ``[action_providers] denylist``, to a
    caller with a role."""
    from mistral import policies
    from mistral.api import access_control
    from oslo_config import cfg
    from oslo_policy import policy

    from mistral_failover.embedded import access

    # The embedded Mistral has no such doors; that of a cloud has.
    monkeypatch.setattr(access, "_closed", lambda _environ: False)
    before = tables()

    def findings(
        rules: dict[str, str] | Path, role: str = "member", *, denied: bool = False
    ) -> list[Finding]:
        file = tmp_path / "policy.yaml"
        if isinstance(rules, Path):
            file = rules
        else:
            file.write_text(json.dumps(rules))
        enforcer = policy.Enforcer(cfg.CONF, policy_file=str(file))
        enforcer.register_defaults(policies.list_rules())
        enforcer.load_rules()
        monkeypatch.setattr(access_control, "_ENFORCER", enforcer)
        monkeypatch.setattr(checks, "dynamic_actions_denied", lambda: denied)
        token = mistral.token_file.read_text("ascii").strip()
        asked = Mistral.__new__(Mistral)
        asked._client = MistralClient(
            mistral.url,
            token=token,
            headers={"X-Roles": role, "X-Project-Id": "p"},
            project=lambda: "p",
        )
        return list(checks.code(examination(asked, role)))

    yield findings
    assert tables() == before, "the doctor changed something"


def examination(mistral: Any, *roles: str) -> Any:
    auth = SimpleNamespace(get_access=lambda _session: SimpleNamespace(role_names=list(roles)))
    security = SimpleNamespace(auth_token="t")
    return SimpleNamespace(
        mistral=mistral,
        without_mistral=False,
        cloud=SimpleNamespace(session=SimpleNamespace(get_token=lambda: "t", auth=auth)),
        request=SimpleNamespace(context=SimpleNamespace(security=security)),
    )


def tables() -> list[Any]:
    """What of users' code is stored, and in which version."""
    from mistral.db.sqlalchemy import base

    @base.session_aware()
    def read(session: Any = None) -> list[Any]:
        found = []
        for name in ("code_sources", "dynamic_action_definitions"):
            rows = sa.select(sa.text("*")).select_from(sa.table(name))
            found += session.execute(rows).fetchall()
        return found

    return read()


@pytest.mark.parametrize(
    ("rules", "role", "denied", "level"),
    [
        ({}, "member", False, "ok"),  # Mistral's own rules
        (EXAMPLE, "member", False, "ok"),
        (OPEN, "member", False, "error"),
        (OPEN, "member", True, "warn"),  # the API's and the engines' configuration is not seen
        ({"dynamic_actions:create": MEMBER}, "member", False, "error"),
        ({"code_sources:update": MEMBER}, "member", False, "error"),
        (OPEN, "reader", False, "ok"),
        ({}, "admin", False, "warn"),  # an administrator's answer tells nothing about members
        ({}, "admin", True, "ok"),
    ],
)
def test_who_may_upload_code_to_mistral_is_told(
    look: Look, rules: dict[str, str] | Path, role: str, denied: bool, level: str
) -> None:
    (found,) = look(rules, role, denied=denied)

    assert found.level == level
    assert bool(found.remedy) == (level != "ok")
    if level == "error":
        assert "mistral-policy.yaml" in found.remedy
        assert "denylist" in found.remedy


@pytest.mark.parametrize(
    ("group", "denied"),
    [
        ({}, False),
        ({"denylist": ["adhoc"]}, False),
        ({"denylist": ["dyn*"]}, True),
        ({"denylist": ["dynamic"], "allowlist": ["legacy", "dynamic"]}, False),  # Mistral's order
        ({"allowlist": ["legacy"]}, True),
    ],
)
def test_which_providers_a_configuration_denies_is_read_as_mistral_reads_it(
    mistral: TestEngine, monkeypatch: pytest.MonkeyPatch, group: dict[str, list[str]], denied: bool
) -> None:
    from oslo_config import cfg

    given = SimpleNamespace(**{"allowlist": [], "denylist": [], **group})
    conf = SimpleNamespace(action_providers=given)
    monkeypatch.setattr(checks, "cfg", SimpleNamespace(CONF=conf))

    assert checks.dynamic_actions_denied() is denied
    monkeypatch.setattr(checks, "cfg", cfg)
    assert checks.dynamic_actions_denied() is True  # the embedded Mistral's own


def test_a_proxy_s_answer_says_nothing_about_the_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Answer:
        status_code, content, headers, reason, text = 404, b"<html>", {}, "Not Found", "<html>"
        request, url = SimpleNamespace(method="POST", url="u"), "u"

        def json(self) -> Any:
            raise ValueError

    session: Any = Session()
    session.explained = lambda failure, *_: failure
    asked = Mistral(session, "http://mistral/v2")
    monkeypatch.setattr(asked._client._adapter, "request", lambda *_a, **_k: Answer())

    with pytest.raises(CloudError):
        asked.code_rules()


def test_a_refusal_that_this_process_asked_for_itself_is_not_logged_as_an_error(
    mistral: TestEngine, caplog: pytest.LogCaptureFixture
) -> None:
    del mistral  # runs in this process
    logger = logging.getLogger("mistral.utils.rest_utils")
    logger.addHandler(caplog.handler)
    client = MistralClient(in_process.URL)
    try:
        assert not client.allows("PUT", "code_sources", params={"identifier": "x"}, data=b"")
        assert "Error during API call" not in caplog.text
        with pytest.raises(MistralError):
            client.request(
                "POST", "workflows", data="nonsense", headers={"Content-Type": "text/plain"}
            )
    finally:
        logger.removeHandler(caplog.handler)

    assert "Error during API call" in caplog.text
