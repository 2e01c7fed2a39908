# SPDX-License-Identifier: Apache-2.0
"""The modules of resource types: how a resource is observed, and checked before it is needed.

Such a module is an entry point of the group ``mistral_failover.resources`` with the name of its
type. It may have:

``OPERATIONS``
    The functions that its type's file names, each an `Operate`: it carries out an operation under
    its lock and returns ``{"physical_id", "attributes"}``, as JSON. It may raise anything that has
    a code, a message and a remedy.

``observe(view, record, group)``
    Return a `model.observation.ObservedPresence`: whether a resource of the group with this name
    still exists as recorded. It only reads, and does not raise CloudError.

``examine(resource)``
    Return in a clause what is right about a resource of a group file, an `ExaminedResource`. It
    only reads. Raise CloudError, or an ExceptionGroup of several, for what would make a failover
    fail: a group file with it is refused, and the doctor shows it. `about` says which property is
    wrong.

``holders(resource)``
    Return the ids of the servers that have an `ExaminedResource` now. It only reads. A type without
    it does not tell where a group serves that has no records (``orders.already_serving``). Raises
    CloudError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Record
from mistral_failover.groups.project_view import ProjectView
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.group import ResourceSpec
from mistral_failover.model.installed import installed
from mistral_failover.model.observation import ObservedPresence
from mistral_failover.model.references import FUNCTIONS
from mistral_failover.model.types import ResourceType
from mistral_failover.resources.operation_context import OperationContext
from mistral_failover.runtime.errors import ActionError

RESOURCES = "mistral_failover.resources"
"""The group of the entry points."""

Operate = Callable[[OperationContext, OperationDocument], dict[str, Any]]
Observe = Callable[[ProjectView, Record, str], ObservedPresence]


@dataclass(frozen=True)
class ExaminedResource:
    """A resource of a group file. ``group`` and ``stack``: their names. ``members``: by the id of
    its server, the name of each member that may get the resource. ``beside``: all resources of the
    group file, by name. ``recorded``: the servers that have something of the group."""

    cloud: Cloud
    group: str
    stack: str | None
    spec: ResourceSpec
    members: Mapping[str, str]
    beside: Mapping[str, ResourceSpec] = field(default_factory=dict)
    recorded: frozenset[str] = frozenset()

    def is_ours(self, server: str) -> bool:
        """Return whether a server is a member's, or has something of the group by its records: a
        member that was replaced, or that a changed group file no longer names."""
        return server in self.members or server in self.recorded


Examine = Callable[[ExaminedResource], str]


@contextmanager
def about(property_name: str) -> Iterator[None]:
    """Let an error of the cloud say which property of the group file is wrong: its name, or the
    path within the properties."""
    try:
        yield
    except CloudError as error:
        error.field = property_name
        raise


def examined(resource: ExaminedResource, kind: ResourceType) -> tuple[str, list[CloudError]]:
    """Return what is right about a resource of a group file, in a clause, and what is wrong with
    it. The clause is empty if something is wrong, or if nothing can be said: nothing examines the
    type, or a property of it is known only when the resource is carried out."""
    look = examiner(kind.name)
    if look is None or _is_open(resource, kind):
        return "", []
    try:
        return look(resource), []
    except CloudError as error:
        return "", [error]
    except ExceptionGroup as several:
        found, others = several.split(CloudError)
        if others is not None or found is None:
            raise
        return "", [error for error in found.exceptions if isinstance(error, CloudError)]


def holders(resource: ExaminedResource, kind: ResourceType) -> frozenset[str]:
    """Return the ids of the servers that have a resource of a group file now; empty if its type
    does not tell, or if what would be asked for cannot be found. Raises CloudError for a service
    that does not answer."""
    look: Callable[[ExaminedResource], Iterable[str]] | None
    look = getattr(installed(RESOURCES).get(kind.name), "holders", None)
    if look is None or _is_open(resource, kind):
        return frozenset()
    try:
        return frozenset(look(resource))
    except CloudError as error:
        if error.transient:
            raise
        return frozenset()  # the operation itself tells it


def _is_open(resource: ExaminedResource, kind: ResourceType) -> bool:
    """Return whether a property of a resource is known only when it is carried out."""
    return any(
        _comes_later(value, key == kind.member_property)
        for key, value in resource.spec.properties.items()
    )


def _comes_later(value: Any, of_member: bool) -> bool:
    """Return whether a property as a whole is a reference, except for the one to the member."""
    return (
        isinstance(value, Mapping) and len(value) == 1 and set(value) <= FUNCTIONS and not of_member
    )


def operation(resource_type: str, function: str) -> Operate:
    """Return a function that the file of a type names: of the type's own module. A type without
    one, such as a copy of a shipped type under a name of its own, has those of all others.

    Raises ActionError UNKNOWN_FUNCTION.
    """
    modules = installed(RESOURCES)
    own = modules.get(resource_type)
    for module in modules.values() if own is None else (own,):
        for each in getattr(module, "OPERATIONS", ()):
            if each.__name__ == function:
                found: Operate = each
                return found
    raise ActionError(
        "UNKNOWN_FUNCTION",
        f"no installed package has the function {function} of the type {resource_type}",
        "Install its package where Mistral's executors run, and restart them.",
    )


def observer(resource_type: str) -> Observe | None:
    """Return how a resource of this type is observed; None if it cannot be."""
    found: Observe | None = getattr(installed(RESOURCES).get(resource_type), "observe", None)
    return found


def examiner(resource_type: str) -> Examine | None:
    """Return how a resource of this type is checked in a group file; None if it is not."""
    found: Examine | None = getattr(installed(RESOURCES).get(resource_type), "examine", None)
    return found
