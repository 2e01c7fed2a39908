# SPDX-License-Identifier: Apache-2.0
"""The grammar of group files and type files as JSON schemas (2020-12)."""

from typing import Any, Final

from mistral_failover.model.stages import Stage
from mistral_failover.model.text import BIDI

RESOURCE_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_-]{0,63}\Z"
"""No colon: names with a colon belong to the engine."""
WORKFLOW_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_.-]{0,254}\Z"
LABEL: Final = rf"^[^/\x00-\x1f\x7f-\x9f{BIDI}]+\Z"
"""A member is a resource of the stack, so Heat's rule for names applies."""
MAX_RESOURCES: Final = 1000
MAX_SECONDS: Final = 86_400
VERSIONS: Final = ("2026-11-21",)
EVENTS: Final = (
    *("admitted", "held", "started", "complete", "failed", "blocked", "returned"),
    *("degraded", "down", "well", "rehearsal_passed", "rehearsal_failed", "rehearsal_ended"),
)
"""Events that a group's own workflow can receive (``on_event``)."""

_NAME: dict[str, Any] = {"type": "string", "pattern": RESOURCE_NAME}
_TEXT: dict[str, Any] = {"type": "string", "maxLength": 4096}
_LABEL: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": LABEL}
NAME: Final[dict[str, Any]] = _LABEL
"""The name of a group."""
SECONDS: Final[dict[str, Any]] = {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_SECONDS}
"""A duration."""

_NAMED: dict[str, Any] = {"type": ["string", "object", "null"], "maxLength": 255}
"""How a group file without a stack names a server; ``model.named`` reads it."""

_ROLE: dict[str, Any] = {
    "type": ["object", "null"],
    "properties": {
        "prefer": {"type": "array", "items": _LABEL, "maxItems": 1000},
        "weight": {"type": "integer", "minimum": 1, "maximum": 100},
    },
    "additionalProperties": False,
}

_COMMAND: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 255}
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]"
"""A time of day."""
_CHECK: dict[str, Any] = {
    "type": ["string", "object"],
    "if": {"type": "string"},
    "then": _COMMAND,
    "else": {
        "properties": {
            "command": _COMMAND,
            "exit_code": {"type": "integer", "minimum": 0, "maximum": 255},
            "role": _NAME,
            "arguments": {
                "type": "object",
                "propertyNames": _NAME,
                "additionalProperties": {"type": ["string", "number", "boolean"]},
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    },
}

GROUP: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "failover_template_version": {"enum": list(VERSIONS)},
        "name": _LABEL,
        "description": _TEXT,
        "stack": _LABEL,
        "members": {
            "type": "object",
            "properties": {
                "servers": {
                    "type": ["array", "object"],
                    "if": {"type": "array"},
                    "then": {"items": _LABEL, "minItems": 1, "maxItems": 1000},
                    "else": {
                        "propertyNames": _LABEL,
                        "minProperties": 1,
                        "maxProperties": 1000,
                        "additionalProperties": _NAMED,
                    },
                },
                "autoscaling_group": _LABEL,
                "choose": _LABEL,
                "replace": {"enum": ["never", "lost"]},
                "restart": {"type": "array", "items": _LABEL, "minItems": 1, "uniqueItems": True},
                "when_no_standby": {"enum": ["replace", "wait"]},
                "priority": {
                    "type": "object",
                    "propertyNames": _LABEL,
                    "maxProperties": 1000,
                    "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 100},
                },
            },
            "additionalProperties": False,
        },
        "roles": {
            "type": ["array", "object"],
            "if": {"type": "array"},
            "then": {"items": _NAME, "minItems": 1, "maxItems": 100},
            "else": {
                "propertyNames": _NAME,
                "minProperties": 1,
                "maxProperties": 100,
                "additionalProperties": _ROLE,
            },
        },
        "resources": {
            "type": "object",
            "propertyNames": _NAME,
            "maxProperties": MAX_RESOURCES,
            "additionalProperties": {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "minLength": 1},
                    "properties": {"type": "object"},
                    "depends_on": {"type": ["string", "array"], "items": {"type": "string"}},
                },
                "required": ["type"],
                "additionalProperties": False,
            },
        },
        "fence": {
            "type": "array",
            "items": {"$ref": "#/$defs/rung"},
            "minItems": 1,
            "maxItems": 20,
        },
        "limits": {
            "type": "object",
            "properties": {
                "cooldown": {"type": "number", "minimum": 0, "maximum": MAX_SECONDS},
                "per_hour": {"type": "integer", "minimum": 1, "maximum": 3600},
                "patience": {"type": "number", "minimum": 0, "maximum": MAX_SECONDS},
                "boot": {"type": "number", "minimum": 1, "maximum": MAX_SECONDS},
            },
            "additionalProperties": False,
        },
        "on_failure": {"enum": ["stop", "rollback"]},
        "priority": {"type": "integer", "minimum": -1000, "maximum": 1000},
        "heal": {"enum": ["report", "repair", "failover"]},
        "rehearsal": {
            "type": "object",
            "properties": {
                "checks": {"type": "array", "items": _CHECK, "maxItems": 100},
                "every": {"type": "string", "pattern": r"^[1-9][0-9]{0,3}[hd]$"},
                "between": {"type": "string", "pattern": f"^{_TIME}-({_TIME}|24:00)$"},
                "members": {"enum": ["chosen", "each"]},
                "limit": SECONDS,
            },
            "additionalProperties": False,
        },
        "workflow": {"type": "string", "pattern": WORKFLOW_NAME},
        "on_event": {
            "type": "object",
            "properties": {
                "workflow": {"type": "string", "pattern": WORKFLOW_NAME},
                "events": {
                    "type": "array",
                    "items": {"enum": list(EVENTS)},
                    "minItems": 1,
                    "uniqueItems": True,
                },
            },
            "required": ["workflow"],
            "additionalProperties": False,
        },
    },
    "required": ["failover_template_version", "members", "resources"],
    "additionalProperties": False,
}
"""A group file, without ``$defs.rung``, which depends on the installed rungs."""

_WORDS: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 100,
    "pattern": rf"^[^\x00-\x1f\x7f-\x9f{BIDI}]+\Z",
}
_OPERATION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "workflow": {"type": "string", "pattern": WORKFLOW_NAME},
        "function": _NAME,
        "timeout": {"type": "integer", "minimum": 1, "maximum": MAX_SECONDS},
        "stage": {"enum": list(Stage)},
    },
    "additionalProperties": False,
}

TYPE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "failover_type_version": {"enum": list(VERSIONS)},
        "name": _NAME,
        "description": _TEXT,
        "replace": {"enum": ["delete_first", "create_first"]},
        "revive": {"type": "boolean"},
        "of_stack": {"type": "boolean"},
        "quiesce_covers": {"type": "boolean"},
        "storage_covers": {"type": "boolean"},
        "provides": {"enum": ["volume", "application", "address"]},
        "repairable": {"type": "boolean"},
        "services": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 64},
            "uniqueItems": True,
            "maxItems": 10,
        },
        "member": _NAME,
        "words": {
            "type": "object",
            "properties": {"create": _WORDS, "update": _WORDS, "delete": _WORDS},
            "additionalProperties": False,
        },
        "properties": {
            "type": "object",
            "propertyNames": _NAME,
            "maxProperties": 100,
            "additionalProperties": {"type": "object"},
        },
        "additional_properties": {"type": ["boolean", "object"]},
        "attributes": {
            "type": "object",
            "propertyNames": _NAME,
            "maxProperties": 100,
            "additionalProperties": {
                "type": ["object", "null"],
                "properties": {"description": _TEXT},
                "additionalProperties": False,
            },
        },
        "operations": {
            "type": "object",
            "properties": {"create": _OPERATION, "update": _OPERATION, "delete": _OPERATION},
            "additionalProperties": False,
        },
    },
    "required": ["failover_type_version", "name", "operations"],
    "additionalProperties": False,
}

# The schema keywords that a type file may use for a property. The list is closed for three reasons.
# JSON schema ignores a misspelt keyword, and the check would be lost silently. References could
# reach out to the network. A user's regular expression, or nested choices, could keep a process
# busy forever.
_SCALARS: list[str] = ["string", "number", "integer", "boolean", "null", "array", "object"]
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_NUMBER: dict[str, Any] = {"type": "number"}


def _keywords(nested: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of a schema by name. Their inner schemas are ``nested``."""
    return {
        "type": {
            "type": ["string", "array"],
            "if": {"type": "string"},
            "then": {"enum": _SCALARS},
            "else": {"items": {"enum": _SCALARS}, "minItems": 1},
        },
        "description": _TEXT,
        "default": {},
        "enum": {"type": "array", "minItems": 1, "maxItems": 1000},
        "const": {},
        "minLength": _COUNT,
        "maxLength": _COUNT,
        "minimum": _NUMBER,
        "maximum": _NUMBER,
        "exclusiveMinimum": _NUMBER,
        "exclusiveMaximum": _NUMBER,
        "minItems": _COUNT,
        "maxItems": _COUNT,
        "items": nested,
        "minProperties": _COUNT,
        "maxProperties": _COUNT,
        "properties": {"type": "object", "additionalProperties": nested},
        "required": {"type": "array", "items": {"type": "string"}},
        "additionalProperties": {
            "type": ["boolean", "object"],
            "if": {"type": "object"},
            "then": nested,
        },
    }


def _schema(keywords: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": keywords, "additionalProperties": False}


_CHOICES: dict[str, Any] = {
    "type": "array",
    "items": {"$ref": "#/$defs/choice"},
    "minItems": 1,
    "maxItems": 16,
}
_KEYWORDS: dict[str, Any] = {
    **_keywords({"$ref": "#/$defs/schema"}),
    **dict.fromkeys(("anyOf", "oneOf", "allOf"), _CHOICES),
}

PROPERTY: Final[dict[str, Any]] = {
    "$defs": {
        "schema": _schema(_KEYWORDS),
        "choice": _schema(_keywords({"$ref": "#/$defs/choice"})),
    },
    **_schema(
        {
            **_KEYWORDS,
            "required": {"type": "boolean"},
            "immutable": {"type": "boolean"},
            "names": {"enum": ["server", "volume", "port", "floating_ip", "pool"]},
        }
    ),
}
"""One property of a type file: a JSON schema. ``required``, ``immutable`` and ``names`` are
ours."""
