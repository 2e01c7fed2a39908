# SPDX-License-Identifier: Apache-2.0
"""Checks of the state store, the settings, the clocks, the server's certificate, and of defects."""

from __future__ import annotations

import time
from collections.abc import Iterable

from mistral_failover.doctor.checks import Examination, Finding, error, ok, warn
from mistral_failover.served_certificate import DAY
from mistral_failover.store import defects as kept_defects
from mistral_failover.store import schema

SKEW = 2.0
"""Seconds by which two clocks may differ without a warning."""
_LOCAL = "sqlite"


def store(examination: Examination) -> Iterable[Finding]:
    """Check that the state store answers, and that its tables are those of this version."""
    database = examination.request.runtime.database
    kind = database.url.get_backend_name()
    began = time.monotonic()
    examination.reading(lambda tx: tx.now())
    took = time.monotonic() - began
    has, wants = schema.revisions(database)
    if has != wants:
        yield error(
            f"its schema is at {has or 'nothing'}, but this version needs {wants}",
            "Restart Mistral's executors: the first action upgrades it. If the schema is newer, "
            "upgrade the package on every host.",
        )
        return
    said = f"{kind} answers within {took:.2f} s, schema {has}"
    if kind == _LOCAL:
        said += "; SQLite supports executors on one host only"
    yield ok(said)


def clocks(examination: Examination) -> Iterable[Finding]:
    """Check that the executor, the database and Mistral agree on the time. Each process counts
    leases by its own clock, so a difference harms no failover; but it confuses people and the times
    in alarms."""
    yield _compared("the database", examination.request.runtime.database.skew())
    if examination.mistral is not None and not examination.without_mistral:
        before = time.time()
        examination.mistral.latest("failover.sweep")
        shown = examination.mistral.now.timestamp() + 0.5  # its answers tell whole seconds
        yield _compared("Mistral", max(before - shown, shown - time.time(), 0.0))


def certificate(examination: Examination) -> Iterable[Finding]:
    """Check the certificate with which this server takes alarms, if it has one."""
    if (served := examination.request.runtime.certificate) is None:
        return
    found = served.problems()
    for each in found:
        yield (error if each.grave else warn)(each.message, each.remedy)
    if not found:
        days = (served.ends - time.time()) / DAY
        yield ok(f"the webhook's certificate is valid for {days:.0f} more days")


def defects(examination: Examination) -> Iterable[Finding]:
    """Check that no error occurred within a day that no code expects."""
    request = examination.request
    found = kept_defects.lately(request.store)
    for each in found:
        yield warn(
            each.sentence,
            'Look for "Defect while" in the logs of Mistral\'s executors and of the failover '
            "server. If a plugin of yours failed, repair it; else report the traceback.",
        )
    if not found:
        yield ok("no unexpected error within a day")


def _compared(whose: str, off: float) -> Finding:
    if off > SKEW:
        return warn(
            f"the clocks of {whose} and of this executor differ by {off:.1f} s",
            "Synchronize the clocks of both hosts with chrony or ntpd.",
        )
    return ok(f"the clocks of {whose} and of this executor agree within {SKEW:.0f} s")


def settings(examination: Examination) -> Iterable[Finding]:
    """Check that the options fit each other."""
    have = examination.settings
    found = []
    if have.http_timeout + have.lease_margin >= have.lease:
        found.append(
            warn(
                f"one call may take {have.http_timeout:g} s, but a lease lasts {have.lease:g} s: "
                "a slow call can lose the lease",
                "Set [failover] lease to about three times http_timeout.",
            )
        )
    if have.hang_after <= have.lease:
        found.append(
            error(
                f"hang_after ({have.hang_after:g} s) is not longer than a lease ({have.lease:g} "
                "s): the sweep may end executions that are still working",
                "Set [failover] hang_after to 300.",
            )
        )
    if have.poll_ceiling > have.lease / 3:
        found.append(
            warn(
                f"a wait may pause for {have.poll_ceiling:g} s, more than a third of a lease",
                "Set [failover] poll_ceiling to 2.",
            )
        )
    if have.storm_groups == 0:
        found.append(
            warn(
                "alarms are never held in a storm (storm_groups is 0)",
                "Set [failover] storm_groups to 3, unless this is intended.",
            )
        )
    said = (
        f"lease {have.lease:g} s, http_timeout {have.http_timeout:g} s, sweep_after "
        f"{have.sweep_after:g} s, hang_after {have.hang_after:g} s"
    )
    return found or [ok(said)]
