# SPDX-License-Identifier: Apache-2.0
"""Checks of Mistral as the caller sees it: actions, workflows, sweeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import entry_points, version
from typing import Any

from oslo_config import cfg
from oslo_utils import timeutils

from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.doctor.checks import Examination, Finding, error, ok, warn
from mistral_failover.doctor.rights import ROLE
from mistral_failover.mistral import releases, shipped_workflows
from mistral_failover.mistral.definitions import Definition
from mistral_failover.model.text import plain

PREFIX = "failover."
SWEEP = "failover.sweep"
LATE = 600.0
"""Seconds after which a missing sweep is reported."""
_SYNC = (
    "An engine does not answer while it waits for an action that was run with run_sync: run "
    "'failover doctor', or run the action without run_sync."
)
ADMINISTRATOR = "admin"
"""The role that makes a caller an administrator for Mistral."""
_UNSHARE = (
    "An administrator deletes what does not belong there (openstack workflow list --filter "
    "name=has:failover.), and lets only administrators publish: examples/mistral-policy.yaml"
)
_DENY = (
    "An administrator sets [action_providers] denylist = dynamic in mistral.conf of every process "
    "of Mistral, and restarts them."
)
_CLOSE = f"An administrator installs the policy examples/mistral-policy.yaml. {_DENY}"
_EVERY_MINUTE = f"openstack cron trigger create failover-sweep {SWEEP} --pattern '* * * * *'"


def release(_examination: Examination) -> Iterable[Finding]:
    """Check that this executor's Mistral is of a release that this package is tested with."""
    found = releases.installed()
    known = releases.release_of(found)
    if known is None:
        yield warn(
            f"this executor runs Mistral {found}, with which this package is not tested",
            f"Tested are {releases.tested()}. With another one, play a failover of a test "
            "group before you rely on it: docs/authentication.md#a-rehearsal.",
        )
    else:
        yield ok(f"this executor runs Mistral {found} of OpenStack {known.openstack}")


def actions(examination: Examination) -> Iterable[Finding]:
    """Check that Mistral's API answers, and knows every action of this version."""
    mistral = examination.mistral
    if mistral is None:
        yield error(
            "this executor has no way to reach Mistral's API",
            "Set [failover] mistral_url, or turn Mistral's authentication on and call with a token",
        )
        return
    try:
        known = set(mistral.actions(PREFIX))
    except CloudError as problem:
        examination.without_mistral = True
        yield error(f"{problem.message} [{problem.code}]", f"{_SYNC} {problem.remedy}")
        return
    needed = {p.name for p in entry_points(group="mistral.actions") if p.name.startswith(PREFIX)}
    missing = sorted(needed - known)
    if missing:
        yield error(
            f"Mistral's API does not know {len(missing)} actions of version "
            f"{version('mistral-failover')}: {', '.join(missing[:5])}",
            "Install the same version for API, engine and executor, then restart them.",
        )
    else:
        yield ok(f"Mistral has all {len(needed)} actions of {version('mistral-failover')}")


def workflows(examination: Examination) -> Iterable[Finding]:
    """Check that Mistral has the workflows of this version."""
    if examination.mistral is None or examination.without_mistral:
        return
    want = shipped_workflows.workflows()
    have: dict[tuple[str, str], list[Definition]] = defaultdict(list)
    for each in examination.mistral.definitions(PREFIX, examination.request.project_id):
        have[each.namespace, each.name].append(each)
    missing = sorted(want.keys() - {name for _, name in have})
    other = sorted(
        {
            name
            for (_, name), (first, *more) in have.items()
            if name in want
            and first.own
            and not more
            and not shipped_workflows.same(want[name], first.text)
        }
    )
    shadowed = list(_shadowed(want, have))
    remedy = "failover workflows install"
    if missing:
        yield error(f"workflows are missing: {', '.join(missing)}", remedy)
    if other:
        yield warn(f"workflows are from another version: {', '.join(other)}", remedy)
    yield from shadowed
    if not missing and not other and not shadowed:
        yield ok(f"all {len(want)} workflows are from version {version('mistral-failover')}")


def _shadowed(
    want: Mapping[str, str], have: Mapping[tuple[str, str], Sequence[Definition]]
) -> Iterable[Finding]:
    """Workflows of other projects that run, or may run, instead of this version's: Mistral takes
    any visible workflow of a name."""
    for (namespace, name), found in sorted(have.items()):
        if name not in want:
            continue
        strange = [each for each in found if not shipped_workflows.same(want[name], each.text)]
        theirs = sorted({each.project for each in strange if not each.own})
        where = f" in the namespace {namespace}" if namespace else ""
        if theirs:
            yield error(
                f"{name}{where} has another definition in {_projects(theirs)}, and Mistral may run "
                "it with your rights",
                _UNSHARE,
            )
        elif len(found) > 1:
            yield (error if strange else warn)(
                f"{name}{where} has {len(found)} visible definitions, and Mistral may run any of "
                "them",
                f"Keep one: remove your own (failover workflows remove), or the public one. "
                f"{_UNSHARE}",
            )


def _projects(names: Sequence[str]) -> str:
    return f"the project{'s' if names[1:] else ''} {', '.join(map(plain, names))}"


def administrator(examination: Examination) -> Iterable[Finding]:
    """Mistral looks names up in all projects for an administrator, also what is private there."""
    if _is_administrator(examination):
        yield error(
            f"the caller has the role {ADMINISTRATOR}: for it, Mistral looks a workflow's name up "
            "in all projects, so any user of this cloud can have a workflow run with its rights",
            f"Use a user of the project that has the role {ROLE} and not {ADMINISTRATOR}, also for "
            "stacks, alarms and cron triggers.",
        )


def _is_administrator(examination: Examination) -> bool:
    """Return whether Keystone gives the caller the role; False without authentication. Raises
    CloudError."""
    if not examination.request.context.security.auth_token:
        return False
    with translated("authenticate", "Keystone"):
        session = examination.cloud.session
        session.get_token()
        auth: Any = session.auth  # of Keystone's kinds, all of which have this
        return ADMINISTRATOR in auth.get_access(session).role_names


def code(examination: Examination) -> Iterable[Finding]:
    """Check that users of the project cannot bring Python code into Mistral, where it would run as
    Mistral's user, with every secret that this user can read.

    The evidence is the answer of Mistral's API to this caller, which enforces the policy, and
    ``[action_providers]`` of this executor. The configuration of the other processes is not seen.
    """
    if examination.mistral is None or examination.without_mistral:
        return
    allowed = examination.mistral.code_rules()
    if not allowed:
        yield ok("Mistral's policy refuses this caller dynamic actions, which are Python code")
        return
    rules, denied = " and ".join(allowed), dynamic_actions_denied()
    if _is_administrator(examination):
        if denied:
            yield ok(
                "this executor's mistral.conf denies dynamic actions, which are Python code. Not "
                "known: the API's and the engines' mistral.conf"
            )
        else:
            yield warn(
                "it is not known whether users without the role admin may upload Python code to "
                "Mistral: the caller is an administrator, who may",
                f"Run the doctor as a user with the role {ROLE} only. {_DENY}",
            )
    elif denied:
        yield warn(
            f"Mistral's policy allows this caller {rules}, with which Python code is uploaded. "
            "This executor's mistral.conf denies such actions; the API's and the engines' was not "
            "seen",
            _CLOSE,
        )
    else:
        yield error(
            f"Mistral's policy allows this caller {rules}: users of this project can run Python "
            "code as Mistral's user, and read every secret that it can read",
            f"{_CLOSE} Then change these secrets: docs/security.md.",
        )


def dynamic_actions_denied() -> bool:
    """Return whether this process's Mistral is configured without the provider of dynamic
    actions."""
    from mistral import config  # noqa: F401 - registers the options
    from mistral.utils.filter_utils import filtered_by_allow_deny_list

    given = cfg.CONF.action_providers
    return bool(filtered_by_allow_deny_list(given.allowlist, given.denylist, "dynamic"))


def sweeps(examination: Examination) -> Iterable[Finding]:
    """Check that something sweeps regularly, to continue work that a crash interrupted."""
    mistral = examination.mistral
    if mistral is None or examination.without_mistral:
        return
    triggers = mistral.cron_triggers(SWEEP)
    last = mistral.latest(SWEEP)
    ago = (mistral.now - last.began).total_seconds() if last else None
    swept = f"the last sweep began {ago:.0f} s ago ({last.state})" if last else "no sweep was found"
    if triggers:
        names = ", ".join(str(row["name"]) for row in triggers)
        if any(_overdue(row, mistral.now) for row in triggers):
            yield error(
                f"the cron trigger {names} is overdue; {swept}",
                "Check that Mistral's engine processes cron triggers, and that the user who "
                "created the trigger still has its roles.",
            )
        elif last is not None and last.state == "ERROR":
            yield error(
                f"the cron trigger {names} runs, but {swept}",
                f"openstack workflow execution output show {last.id}",
            )
        else:
            yield ok(f"the cron trigger {names} runs; {swept}")
    elif not examination.request.context.security.auth_token:
        yield ok(
            "an embedded Mistral sweeps without a cron trigger if there is work to continue; "
            f"{swept}"
        )
    elif ago is not None and ago <= LATE:
        yield ok(f"no cron trigger of this project sweeps, but another client does; {swept}")
    else:
        yield error(
            f"nothing sweeps in this project ({swept}): work that a crash interrupted is not "
            "continued",
            _EVERY_MINUTE,
        )


def _overdue(row: dict[str, Any], now: datetime) -> bool:
    due = row.get("next_execution_time")
    if not due:
        return False
    return (now - timeutils.parse_isotime(str(due))).total_seconds() > LATE
