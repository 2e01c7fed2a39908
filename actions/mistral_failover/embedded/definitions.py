# SPDX-License-Identifier: Apache-2.0
"""Registering workflow definitions without the REST API."""

import yaml

from mistral_failover.embedded.errors import EmbeddedError


def install(text: str, origin: str = "<text>") -> list[str]:
    """Create the workflows of a Mistral v2 text, or update those that differ from it.

    A file of one workflow is stored as it is, so a reader of the API sees its comments.

    :param origin: the text's name in errors, e.g. its file. :returns: the names of the workflows
    that were new or changed. :raises EmbeddedError: ``WORKFLOW_INVALID`` with Mistral's own
    reason.
    """
    from mistral import exceptions as exc
    from mistral.db.v2 import api as db_api
    from mistral.services import workflows

    try:
        names = [n for n in yaml.safe_load(text) if n != "version"]
        known = {n: db_api.load_workflow_definition(n, namespace="") for n in names}
        if len(names) == 1:
            checksum = workflows.get_workflow_definition_checksum(text)
            found = known[names[0]]
            if found is not None and found.checksum == checksum:
                return []
        if all(known.values()):
            return [w.name for w in workflows.update_workflows(text)]
        if not any(known.values()):
            return [w.name for w in workflows.create_workflows(text)]
    except (exc.MistralException, exc.MistralError, yaml.YAMLError, TypeError) as e:
        raise EmbeddedError(
            "WORKFLOW_INVALID",
            f"{origin}: {str(e).splitlines()[0]}",
            f"failover workflows validate {origin}",
        ) from e
    raise EmbeddedError(
        "WORKFLOW_MIXED",
        f"{origin}: some of its workflows are registered and some are not",
        "put one workflow into each file",
    )
