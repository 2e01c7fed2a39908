# SPDX-License-Identifier: Apache-2.0
"""What a cloud answers, in forms: which request got which status, with which fields of which types.
Of values nothing is kept: no id, no name, no secret.

``--record FOLDER`` writes them while the contract is tried; `contract.differences` compares those
of the two clouds.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import requests

Fields = dict[str, list[str]]
"""By path, the types that a field has: ``server.addresses.*[].addr``."""
Recording = dict[str, dict[str, dict[str, Any]]]
"""By request (``nova GET /servers/*``) and status: ``fields`` and ``headers``."""

OPEN = frozenset(
    {
        "absolute",
        "addresses",
        "attributes",
        "connection_info",
        "environment",
        "extra_specs",
        "files",
        "metadata",
        "output_value",
        "outputs",
        "parameter_defaults",
        "parameters",
        "properties",
        "resource_registry",
        "resources",
        "template",
        "volume_image_metadata",
    }
)
"""Fields of which the keys are names that users or hosts chose, or too many to tell anything."""
HEADERS = ("x-openstack-request-id", "x-compute-request-id", "retry-after", "location")
"""The headers that tell something."""
_WORDS = re.compile(
    r"^(servers|detail|action|os-[a-z_-]+|volumes|snapshots|attachments|limits|flavors|images|stacks"
    r"|resources|events|template|environment|actions|ports|networks|subnets|routers|floatingips"
    r"|security-groups|extensions|tags|zones|recordsets|loadbalancers|pools|members|lbaas|alarms"
    r"|signal|auth|tokens|trusts|OS-TRUST|projects|users|roles|domains|groups|group_snapshots|types"
    r"|preview|build_info|metadata|credentials|application_credentials|access_rules|state|summary"
    r"|services|endpoints|catalog|outputs|validate|query|v[0-9.]+)$"
)
_PROJECT = re.compile(r"^[0-9a-f]{32}$")
_TYPES = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}


class Recorder:
    """Records the answers of services, given by the beginning of their addresses."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = sorted(places.items(), key=lambda each: -len(each[0]))
        self._found: dict[tuple[str, str], tuple[dict[str, set[str]], set[str]]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def recording(self, file: Path) -> Iterator[None]:
        """Record while the block runs, then write the file."""
        send = requests.Session.send

        def sent(session: requests.Session, request: Any, **options: Any) -> requests.Response:
            answer = send(session, request, **options)
            self._note(request, answer)
            return answer

        with mock.patch.object(requests.Session, "send", sent):
            yield
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(self.found, indent=1, sort_keys=True) + "\n", "utf-8")

    @property
    def found(self) -> Recording:
        """What was recorded."""
        made: Recording = {}
        with self._lock:
            for (request, status), (fields, headers) in self._found.items():
                made.setdefault(request, {})[status] = {
                    "fields": {path: sorted(types) for path, types in fields.items()},
                    "headers": sorted(headers),
                }
        return made

    def _note(self, request: requests.PreparedRequest, answer: requests.Response) -> None:
        asked = self._asked(request)
        if asked is None:
            return
        try:
            document = answer.json()
        except ValueError:
            document = None
        with self._lock:
            fields, headers = self._found.setdefault((asked, str(answer.status_code)), ({}, set()))
            headers.update(each for each in HEADERS if each in answer.headers)
            if document is not None:
                for path, kind in forms(document):
                    fields.setdefault(path, set()).add(kind)

    def _asked(self, request: requests.PreparedRequest) -> str | None:
        url = str(request.url).partition("?")[0]
        found = next((each for each in self._places if url.startswith(each[0])), None)
        if found is None:
            return None
        place, service = found
        words = [each for each in url[len(place) :].split("/") if each]
        if words and _PROJECT.match(words[0]) and service in ("heat", "cinder", "nova"):
            del words[0]
        path = "/".join(each if _WORDS.match(each) else "*" for each in words)
        said = f"{service} {request.method} /{path}"
        if path.endswith("/action") and request.body:
            said += f" {next(iter(json.loads(request.body)), '')}"
        return said


def forms(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each field of a document with its type; of a list all of its elements as one."""
    if isinstance(value, Mapping):
        yield path, "object"
        name = path.rpartition(".")[2].removesuffix("[]")
        for key, each in value.items():
            shown = "*" if name in OPEN else str(key)
            yield from forms(each, f"{path}.{shown}" if path else shown)
    elif isinstance(value, list):
        yield path, "array"
        for each in value:
            yield from forms(each, f"{path}[]")
    else:
        yield path, _TYPES[type(value)]


def merged(files: list[Path]) -> Recording:
    """Return what several processes recorded of one cloud."""
    made: Recording = {}
    for file in files:
        for request, answers in json.loads(file.read_text("utf-8")).items():
            for status, answer in answers.items():
                into = made.setdefault(request, {}).setdefault(
                    status, {"fields": {}, "headers": []}
                )
                for path, types in answer["fields"].items():
                    into["fields"][path] = sorted({*into["fields"].get(path, ()), *types})
                into["headers"] = sorted({*into["headers"], *answer["headers"]})
    return made


def file_of(folder: str) -> Path:
    """Where this process of a test run records."""
    return Path(folder) / f"{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}.json"
