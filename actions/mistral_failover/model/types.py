# SPDX-License-Identifier: Apache-2.0
"""Resource types: the properties of a resource, and the operations that create it.

A type is one YAML file::

    failover_type_version: 2026-11-21
    name: volume_attachment
    description: A volume of the stack on a member
    replace: delete_first            # or create_first (the default)
    revive: true                     # false by default
    of_stack: true                   # false by default
    quiesce_covers: true             # false by default
    storage_covers: true             # false by default
    provides: volume                 # or application, or address; nothing by default
    repairable: false                # the default
    services: [Cinder, Nova]         # none by default
    member: server                   # the property that names the member it belongs to
    properties:                      # by name: JSON schema, and three words of ours
      volume: {type: string, required: true, immutable: true, names: volume}
      server: {type: string, required: true, immutable: true}
    additional_properties: false     # or true, or one schema for all others
    attributes:                      # what get_attr may ask for
      device: {description: Device name on the server}
    operations:                      # create, update, delete
      create: {function: attach_volume, timeout: 300, stage: move_volumes}
      delete: {workflow: house.take_volume_away}
    words:                           # by operation: how people read it
      create: Attach {name} to {member}

``required`` and ``immutable`` are true or false. For keys that a mapping needs inside, use ``allOf:
[{required: [...]}]``. Properties beyond the named ones are always mutable. An operation that is
absent (or ``{}``) has no side effect. ``create`` is always needed, ``update`` only if a property is
mutable. Either a ``workflow`` carries out an operation, or a ``function`` of the type's own module
(``resources.modules``). ``timeout`` is in seconds, default 300. ``stage`` is its milestone
(``model.stages``); without it, the operation belongs to the latest stage among what it waits for.
``revive`` applies to a resource whose deletion failed: ``create`` brings it back in place, whatever
is left of it; otherwise it is deleted and created again. ``of_stack``: it changes the group's
stack, so a group without one cannot have it. ``names`` says what a property names: with a stack a
resource of it, or an id; without one, something that is found when the group file is accepted
(``model.named``), and the operations get its id. ``quiesce_covers`` says that nothing
writes through the resource after the applications on its server have stopped. So the rung
``quiesce`` also proves its fence. ``storage_covers`` says that nothing can be changed through the
resource once the storage refuses the writes of its server. So the rung ``storage`` also proves its
fence. ``provides`` says what its member gets from it; a group serves only if all that its resources
provide is there. ``repairable``: an update does not touch the service, so ``heal: repair`` may
repeat it without asking. ``services`` are the services that the operations ask for changes; each
has a budget (``runtime.budgets``). ``words`` say in the journal, in plans and on
the page what an operation does; ``{name}`` is the resource, ``{member}`` its member. Without them
they are ``Create {name} on {member}`` and so on (``model.operation_words``).
"""

import copy
import functools
import importlib.resources
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from mistral_failover.model.canonical import canonical_json
from mistral_failover.model.documents import read_document
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.installed import installed
from mistral_failover.model.named import Thing
from mistral_failover.model.references import holds_reference
from mistral_failover.model.stages import Stage
from mistral_failover.model.validation import (
    check_grammar,
    check_schema,
    did_you_mean,
    every_error,
)

LOG = logging.getLogger(__name__)
TYPES = "mistral_failover.types"
"""The group of the entry points. Each names a package whose YAML files are types."""
DEFAULT_TIMEOUT = 300

Replace = Literal["delete_first", "create_first"]
_OURS = frozenset({"required", "immutable", "names"})
"""The words of a property that are not of JSON schema."""
_PLACEHOLDER = re.compile(r"\{[^{}]*\}|[{}]")


class Verb(StrEnum):
    """What an operation does to a resource."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class Provides(StrEnum):
    """What a member gets from a resource. Without any of it the group does not serve."""

    VOLUME = "volume"
    APPLICATION = "application"
    ADDRESS = "address"


@dataclass(frozen=True)
class OperationSpec:
    """How one operation of a type is carried out: by its workflow, or by a function."""

    workflow: str | None = None
    function: str | None = None
    timeout: int = DEFAULT_TIMEOUT
    """Seconds after which the operation counts as failed."""
    stage: Stage | None = None
    """Its milestone; None: the latest of what it waits for."""


@dataclass(frozen=True)
class ResourceType:
    """A type of resource; see the module for its grammar."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """JSON schema (2020-12) of the properties as one object."""
    immutable: frozenset[str]
    """Properties whose change replaces the resource."""
    replace: Replace
    revive: bool
    """Whether ``create`` restores in place what a failed deletion left."""
    of_stack: bool
    """Whether it changes the group's stack."""
    names: Mapping[str, Thing]
    """By property, what it names."""
    quiesce_covers: bool
    """Whether it is idle as soon as the applications on its server have stopped."""
    storage_covers: bool
    """Whether it is idle as soon as the storage refuses the writes of its server."""
    provides: Provides | None
    """What its member gets from it."""
    repairable: bool
    """Whether it may be repaired without asking: an update does not touch the service."""
    services: tuple[str, ...]
    """The services that its operations ask for changes; each has a budget."""
    member_property: str | None
    """The property that names the resource's member."""
    words: Mapping[Verb, str]
    """What an operation does, with ``{name}`` and ``{member}``; see ``model.operation_words``."""
    attributes: tuple[str, ...]
    """What ``get_attr`` may ask for, sorted."""
    operations: Mapping[Verb, OperationSpec]
    """A missing operation has no side effect."""
    document: Mapping[str, Any] = field(repr=False)
    """The type file as given."""

    def to_dict(self) -> dict[str, Any]:
        """Return the type file as a new plain dict; :func:`load_type` reads it back."""
        return copy.deepcopy(dict(self.document))


def load_type(source: str | bytes | Mapping[str, Any]) -> ResourceType:
    """Read a type file: its YAML text, or the mapping parsed from it.

    :raises InvalidDocument: when it breaks the grammar.
    """
    document = read_document(source, "type file")
    for slip in _actions(document):
        raise slip
    check_grammar("type", document)
    properties: dict[str, Any] = document.get("properties", {})
    additional = document.get("additional_properties", False)
    schema = {
        "type": "object",
        "properties": {
            name: _property_schema(spec, f"properties.{name}") for name, spec in properties.items()
        },
        "required": sorted(name for name, spec in properties.items() if spec.get("required")),
        "additionalProperties": (
            additional
            if isinstance(additional, bool)
            else _property_schema(additional, "additional_properties")
        ),
    }
    resource_type = ResourceType(
        name=document["name"],
        description=document.get("description", ""),
        schema=schema,
        immutable=frozenset(name for name, spec in properties.items() if spec.get("immutable")),
        replace=document.get("replace", "create_first"),
        revive=document.get("revive", False),
        of_stack=document.get("of_stack", False),
        names={name: Thing(spec["names"]) for name, spec in properties.items() if "names" in spec},
        quiesce_covers=document.get("quiesce_covers", False),
        storage_covers=document.get("storage_covers", False),
        provides=Provides(document["provides"]) if "provides" in document else None,
        repairable=document.get("repairable", False),
        services=tuple(document.get("services", ())),
        member_property=document.get("member"),
        words=document.get("words", {}),
        attributes=tuple(sorted(document.get("attributes", {}))),
        operations=_operations(document["operations"]),
        document=document,
    )
    for slip in _meaning(document):
        raise slip
    return resource_type


@dataclass(frozen=True)
class _Installed:
    """The types of installed packages, and why files that were left out were."""

    types: dict[str, ResourceType] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)


@functools.cache
def _installed() -> _Installed:
    found = _Installed()
    for package in installed(TYPES).values():
        entries = importlib.resources.files(package).iterdir()
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.endswith(".yaml"):
                _add(found, entry.read_bytes(), f"{package.__name__}/{entry.name}")
    return found


def _add(found: _Installed, text: bytes, file: str) -> None:
    """Add the type of a file. An invalid file must not block the others."""
    try:
        resource_type = load_type(text)
    except InvalidDocument as error:
        why = str(error)
    else:
        if found.types.setdefault(resource_type.name, resource_type) is resource_type:
            return
        why = f"a type named {resource_type.name} already exists."
    LOG.error("%s is ignored: %s", file, why)
    found.ignored.append(f"{file} is ignored: {why}")


def installed_types() -> dict[str, ResourceType]:
    """Return the types of this package and of other installed packages, by name."""
    return dict(_installed().types)


def ignored_types() -> list[str]:
    """Return a sentence for each type file of an installed package that was left out: the file, why
    it was, and what to do."""
    return list(_installed().ignored)


def check_properties(
    resource_type: ResourceType, properties: Mapping[str, Any], path: str = "properties"
) -> None:
    """Check the properties of a resource against its type.

    A property whose value still contains an intrinsic function counts as given. Check again after
    it is resolved.

    :raises InvalidDocument: with a path that begins with ``path``.
    """
    known = {key: value for key, value in properties.items() if not holds_reference(value)}
    open_keys = properties.keys() - known.keys()
    schema = resource_type.schema
    if schema["additionalProperties"] is False:
        # Before what is missing: it may be the same key, mistyped.
        for key in sorted(properties.keys() - schema["properties"].keys()):
            raise InvalidDocument(
                f"{path}.{key}", f'unknown key "{key}"', did_you_mean(key, schema["properties"])
            )
    required = [key for key in schema["required"] if key not in open_keys]
    check_schema({**schema, "required": required}, known, path)


def _property_schema(spec: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the JSON schema of a property's entry, without our own words."""
    check_grammar("property", spec, path)
    return {key: value for key, value in spec.items() if key not in _OURS}


def type_problems(source: str | bytes | Mapping[str, Any]) -> list[InvalidDocument]:
    """Return every problem of a type file, sorted by path. An empty list: :func:`load_type`, which
    raises only one, accepts it."""
    try:
        document = read_document(source, "type file")
    except InvalidDocument as error:
        return [error]
    found = [*_actions(document), *every_error("type", document)]
    schemas = {f"properties.{name}": spec for name, spec in _part(document, "properties").items()}
    schemas["additional_properties"] = document.get("additional_properties")
    for path, spec in schemas.items():
        if isinstance(spec, Mapping):
            found += every_error("property", spec, path)
    wrong = {each.path for each in found}
    # What a refused part means is not known.
    found += (each for each in _meaning(document, wrong) if each.path not in wrong)
    unique = {each.path: each for each in reversed(found)}
    return sorted(unique.values(), key=lambda each: each.path)


def _part(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a mapping of a document; an empty one if it has none."""
    found = document.get(key)
    return found if isinstance(found, Mapping) else {}


def _actions(document: Mapping[str, Any]) -> Iterator[InvalidDocument]:
    for name, spec in _part(document, "operations").items():
        if isinstance(spec, Mapping) and "action" in spec:
            yield InvalidDocument(
                f"operations.{name}.action",
                "no operation is a single action",
                "Name a workflow with one task that calls the action.",
            )


def _operations(given: Mapping[str, Any]) -> dict[Verb, OperationSpec]:
    return {
        Verb(name): _operation(spec, f"operations.{name}") for name, spec in given.items() if spec
    }


def _operation(given: Mapping[str, Any], path: str) -> OperationSpec:
    for slip in _carrier(given, path):
        raise slip
    stage = given.get("stage")
    return OperationSpec(
        given.get("workflow"),
        given.get("function"),
        given.get("timeout", DEFAULT_TIMEOUT),
        None if stage is None else Stage(stage),
    )


def _carrier(given: Mapping[str, Any], path: str) -> Iterator[InvalidDocument]:
    if (given.get("workflow") is None) == (given.get("function") is None):
        yield InvalidDocument(
            path,
            'exactly one of "workflow" and "function" is needed',
            "Keep or add the one that carries out the operation.",
        )


def _words(document: Mapping[str, Any]) -> Iterator[InvalidDocument]:
    known = ["{name}"] if document.get("member") is None else ["{name}", "{member}"]
    for verb, words in _part(document, "words").items():
        for found in _PLACEHOLDER.findall(words) if isinstance(words, str) else ():
            if found not in known:
                yield InvalidDocument(
                    f"words.{verb}",
                    f'"{found}" is not known here',
                    f"Use {' and '.join(known)}. For {{member}} the type needs the key member.",
                )


def _meaning(
    document: Mapping[str, Any], wrong: Collection[str] = frozenset()
) -> Iterator[InvalidDocument]:
    """Yield what is wrong beyond the grammar. ``wrong``: the paths of what breaks the grammar."""
    properties, operations = _part(document, "properties"), _part(document, "operations")
    for name, spec in operations.items():
        if isinstance(spec, Mapping) and spec and not _touched(wrong, f"operations.{name}"):
            yield from _carrier(spec, f"operations.{name}")
    yield from _words(document)
    if not isinstance(document.get("operations"), Mapping):
        return
    if not operations.get(Verb.CREATE):
        yield InvalidDocument(
            "operations",
            "create is missing",
            "Name the workflow or function that creates such a resource.",
        )
    member = document.get("member")
    if member is not None and member not in properties and not _touched(wrong, "properties"):
        yield InvalidDocument(
            "member",
            f'"{member}" is not a property',
            did_you_mean(str(member), properties),
        )
    if _touched(wrong, "properties") or _touched(wrong, "additional_properties"):
        return
    mutable = sorted(name for name, spec in properties.items() if not spec.get("immutable"))
    if document.get("additional_properties", False) is not False:
        mutable.append("any additional property")
    if mutable and not operations.get(Verb.UPDATE):
        yield InvalidDocument(
            "operations",
            f"update is missing, but these can change: {', '.join(mutable)}",
            "Add an update, or mark the properties immutable.",
        )


def _touched(wrong: Collection[str], part: str) -> bool:
    """Return whether a part of a document, or something in it, is among the wrong paths."""
    return any(each == part or each.startswith((f"{part}.", f"{part}[")) for each in wrong)


@dataclass(frozen=True)
class Change:
    """The action that new properties require, and the properties that cause it."""

    action: Literal["none", "update", "replace"]
    keys: tuple[str, ...] = ()
    """Sorted. For ``replace`` the immutable properties that differ, otherwise all that differ."""


def compare(
    resource_type: ResourceType,
    old_properties: Mapping[str, Any],
    new_properties: Mapping[str, Any],
) -> Change:
    """Compare two sets of properties of one resource.

    If an immutable property differs, the resource must be replaced, whatever else differs. If the
    type has no update, any difference requires a replacement. Values are equal if their canonical
    JSON is equal, so 3 equals 3.0 but not ``true``. An absent property differs from one that is
    null.
    """
    differing = tuple(
        sorted(
            key
            for key in old_properties.keys() | new_properties.keys()
            if not _same(key, old_properties, new_properties)
        )
    )
    if not differing:
        return Change("none")
    immutable = tuple(key for key in differing if key in resource_type.immutable)
    if immutable:
        return Change("replace", immutable)
    if Verb.UPDATE not in resource_type.operations:
        return Change("replace", differing)
    return Change("update", differing)


def _same(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if key not in old or key not in new:
        return False
    return canonical_json(old[key]) == canonical_json(new[key])
