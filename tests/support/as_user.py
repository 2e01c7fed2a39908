# SPDX-License-Identifier: Apache-2.0
"""Running a workflow with somebody's token: the security context that Mistral's API would have made
of a request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mistral_failover.lab.testing.workflows import Run, Workflows


def start_as(security: SimpleNamespace, name: str, inputs: dict[str, Any]) -> str:
    """Start a workflow with what a request brings along; returns its execution's id."""
    # Not before the engine has chosen oslo.service's backend.
    from mistral import context as auth
    from mistral.rpc import clients

    before = auth.ctx() if auth.has_ctx() else None
    auth.set_ctx(auth.MistralContext(user_id="somebody", **vars(security)))
    try:
        started = clients.get_engine_client().start_workflow(name, wf_input=inputs)
    finally:
        auth.set_ctx(before)
    return str(started["id"] if isinstance(started, dict) else started.id)


def run_as(
    workflows: Workflows, security: SimpleNamespace, name: str, inputs: dict[str, Any]
) -> Run:
    """Run a workflow to its end, as :func:`start_as`."""
    return workflows.wait(start_as(security, name, inputs), timeout=20)
