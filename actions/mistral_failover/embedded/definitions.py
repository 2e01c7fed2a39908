# SPDX-License-Identifier: Apache-2.0
"""Registering workflow definitions without the REST API."""

import functools
import textwrap
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator, ValidationError

from mistral_failover import workflows as shipped
from mistral_failover.errors import CodedError
from mistral_failover.model.documents import load_workflow
from mistral_failover.model.errors import InvalidDocument

_LONGEST = 300  # characters of a reason
TEXT = "<text>"
"""The origin of a text that is in no file."""


def install(text: str, origin: str = TEXT) -> list[str]:
    """Create the workflows of a Mistral v2 text, or update those that differ from it.

    A file of one workflow is stored as it is, so a reader of the API sees its comments. This
    package's own files are not checked again.

    :param origin: the text's name in errors, e.g. its file. :returns: the names of the workflows
    that were new or changed. :raises CodedError: ``WORKFLOW_INVALID`` with Mistral's own
    reason.
    """
    from mistral import exceptions as exc
    from mistral.db.v2 import api as db_api
    from mistral.services import workflows

    try:
        names = [n for n in load_workflow(text, "text") if n != "version"]
        known = {n: db_api.load_workflow_definition(n, namespace="") for n in names}
        if len(names) == 1:
            checksum = workflows.get_workflow_definition_checksum(text)
            found = known[names[0]]
            if found is not None and found.checksum == checksum:
                return []
        check = origin not in shipped.paths()
        check_schemas_once()
        if all(known.values()):
            return [w.name for w in workflows.update_workflows(text, validate=check)]
        if not any(known.values()):
            return [w.name for w in workflows.create_workflows(text, validate=check)]
    except (exc.MistralException, exc.MistralError, InvalidDocument, TypeError) as e:
        # Mistral's own error shows the schema of its language, which is hundreds of lines.
        raise CodedError(
            "WORKFLOW_INVALID",
            f"{origin}: {reason(e)}",
            "correct the text"
            if origin == TEXT
            else f"correct it, then: failover workflows validate {origin}",
        ) from None
    raise CodedError(
        "WORKFLOW_MIXED",
        f"{origin}: some of its workflows are registered and some are not",
        "put one workflow into each file",
    )


@functools.cache
def check_schemas_once() -> None:
    """Have jsonschema remember which schemas it has found valid. Mistral has the schema of its
    language checked again for each part of each file, which takes ten times as long as the file."""
    check = Draft202012Validator.check_schema
    valid = functools.lru_cache(maxsize=256)(lambda schema: check(schema.document))

    def checked(schema: Any, *more: Any, **options: Any) -> None:
        if more or options:
            check(schema, *more, **options)
        else:
            valid(_Same(schema))

    Draft202012Validator.check_schema = checked  # type: ignore[method-assign]


class _Same:
    """A document that equals itself alone. While this is kept, no other document has its id."""

    def __init__(self, document: Any) -> None:
        self.document = document

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.document is self.document

    def __hash__(self) -> int:
        return id(self.document)


def reason(error: Exception) -> str:
    """Return in one line why Mistral refuses a text: which key, and of which task or under which
    path, if its schema refuses it."""
    broken = error.__context__
    if not isinstance(broken, ValidationError):
        return textwrap.shorten(str(error), _LONGEST, placeholder="...")
    where = ".".join(map(str, broken.absolute_path))
    if not where and isinstance(broken.instance, Mapping):
        where = str(broken.instance.get("name", ""))
    said = f"{where}: {broken.message}" if where else broken.message
    return textwrap.shorten(said, _LONGEST, placeholder="...")
