# SPDX-License-Identifier: Apache-2.0
"""Alarms that a server had taken when it died, perhaps before their admission was recorded, are
delivered again. An admitted alarm counts as a repeat, so nothing starts twice."""

from __future__ import annotations

import logging

from mistral_failover.embedded.server import EmbeddedMistral
from mistral_failover.mistral.client import MistralClient, MistralError
from mistral_failover.model.ids import derived_id

LOG = logging.getLogger(__name__)
_ALARMS = ("failover.on_alarm", "failover.on_event", "failover.start_admitted")


def redeliver(mistral: EmbeddedMistral) -> None:
    """Deliver the alarms among the executions of a former process again, and end those executions.

    In this order, and each under an id that follows from the former one, so that a process
    that dies meanwhile loses none. One that is refused is logged, and no other waits for it. The
    package's workflows must be installed. Raises MistralError MISTRAL_UNREACHABLE.
    """
    for row in mistral.stale_executions():
        if row["workflow_name"] not in _ALARMS or row["root_execution_id"] is not None:
            continue
        try:
            again = _again(mistral.client, row["id"])
        except MistralError as error:
            if error.code == "MISTRAL_UNREACHABLE":
                raise
            # One failure must not delay the other alarms, or the server itself.
            LOG.error(
                "Mistral refuses an alarm of a server that died: %s. Its content is the input of "
                "execution %s: send it again.",
                error,
                row["id"],
            )
        else:
            LOG.info("Delivered an alarm of a server that died again, as execution %s.", again)
    if ended := mistral.cancel_stale():
        LOG.info("Ended %d executions of the former server.", len(ended))


def _again(client: MistralClient, identity: str) -> str:
    execution = client.execution(identity)
    started = client.start(
        execution["workflow_name"],
        execution["input"],
        id=derived_id("alarm again", identity),
        description=f"again, for the server that carried {identity} out has died",
    )
    return str(started["id"])
