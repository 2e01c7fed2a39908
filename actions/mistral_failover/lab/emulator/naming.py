# SPDX-License-Identifier: Apache-2.0
"""Designate's API v2: zones and their recordsets.

A change is shown at once, PENDING; a while later the name servers answer with it, and it is ACTIVE,
or ERROR if they could not be reached. A recordset that is being deleted is shown no more, while the
name servers still answer with it. Of the types there are those of addresses and names, and TXT.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from oslo_utils import uuidutils
from starlette.routing import Route

from mistral_failover.lab.emulator.core import Emulation, transition
from mistral_failover.lab.emulator.state import Recordset, Zone, new_id
from mistral_failover.lab.emulator.web import ApiError, Call, Service, endpoint, take_fault

_TITLES = {400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found"}
_LONGEST = 160
_VERSIONS = {"A": 4, "AAAA": 6}
_NAMES = {"CNAME", "MX", "NS", "PTR", "SRV"}
"""Types whose records end with a name, which ends with a dot."""
_LONGEST_TEXT = 255
_STRAY_QUOTE = re.compile(r'(?<!\\)"')


def error_body(status: int, message: str, title: str = "") -> dict[str, Any]:
    """Designate's error body."""
    title = title or _TITLES.get(status, "unknown")
    return {"code": status, "type": title, "message": message, "request_id": f"req-{new_id()}"}


SERVICE = Service("dns", error_body)


def refused(status: int, title: str, message: str) -> ApiError:
    """An error of Designate's."""
    return ApiError(status, error_body(status, message, title))


def _invalid(message: str) -> ApiError:
    words = f"Provided object is not valid. Got a ValueError error with message {message}"
    return refused(400, "invalid_object", words)


def _wrong(path: list[Any], message: str) -> ApiError:
    found = [{"path": path, "message": message}]
    return ApiError(400, {"code": 400, "type": "invalid_object", "errors": {"errors": found}})


def _settle_later(emulation: Emulation, recordset: Recordset) -> None:
    recordset.version += 1
    emulation.later(
        "name_server", "name_server.settled", recordset_id=recordset.id, version=recordset.version
    )
    emulation.changed()


@transition("name_server.settled")
def _settled(emulation: Emulation, recordset_id: str, version: int) -> None:
    """The name servers have the change, unless a newer one follows."""
    recordset = emulation.state.recordsets.get(recordset_id)
    if recordset is None or recordset.version != version:
        return
    if take_fault(emulation, "name_server", ("fail",)) is not None:
        recordset.status = "ERROR"
    else:
        recordset.status = "ACTIVE"
        records = [] if recordset.deleted else list(recordset.records)
        emulation.audit.record("dns_answer", name=recordset.name, records=records)
        if recordset.deleted:
            del emulation.state.recordsets[recordset.id]
    emulation.changed()


def _zone_view(zone: Zone) -> dict[str, Any]:
    return {
        "id": zone.id,
        "name": zone.name,
        "project_id": zone.project_id,
        "email": zone.email,
        "ttl": 3600,
        "type": "PRIMARY",
        "status": "ACTIVE",
        "action": "NONE",
    }


def _view(recordset: Recordset, zone: Zone) -> dict[str, Any]:
    return {
        "id": recordset.id,
        "zone_id": zone.id,
        "zone_name": zone.name,
        "project_id": zone.project_id,
        "name": recordset.name,
        "type": recordset.type,
        "records": recordset.records,
        "ttl": recordset.ttl,
        "description": recordset.description,
        "status": recordset.status,
        "action": "NONE" if recordset.status == "ACTIVE" else "UPDATE",
    }


def _zone(call: Call) -> Zone:
    identity = call.path("zone_id")
    if not uuidutils.is_uuid_like(identity):
        raise refused(400, "invalid_uuid", f"Invalid UUID zone_id: {identity}")
    zone = call.emulation.state.zones.get(identity)
    if zone is None or not call.sees(zone.project_id):
        raise refused(404, "zone_not_found", "Could not find Zone")
    return zone


def _shown(call: Call, zone: Zone) -> list[Recordset]:
    rows = call.emulation.state.recordsets.values()
    return [each for each in rows if each.zone_id == zone.id and not each.deleted]


def _recordset(call: Call, zone: Zone) -> Recordset:
    identity = call.path("recordset_id")
    found = next((each for each in _shown(call, zone) if each.id == identity), None)
    if found is None:
        raise refused(404, "recordset_not_found", "Could not find RecordSet")
    return found


def _asked(call: Call, type_: str, known: set[str]) -> dict[str, Any]:
    for key in call.body.keys() - known:
        words = f"Keys ['{key}'] are not valid for recordset"
        raise refused(400, "invalid_object", f"Provided object does not match schema. {words}")
    asked: dict[str, Any] = call.body
    if len(str(asked.get("description") or "")) > _LONGEST:
        raise _invalid("Value too long for description")
    if type_ not in (*_VERSIONS, *_NAMES, "TXT"):
        raise _wrong(["recordset", "type"], f"'{type_}' is not a supported record type")
    for place, record in enumerate(asked.get("records", ())):
        if not _is_record(type_, record):
            raise _wrong(["records", place], f"'{record}' is not a '{type_}' Record")
    return asked


def _is_record(type_: str, record: str) -> bool:
    if type_ == "TXT":
        return _is_text(record)
    if type_ in _NAMES:
        return record.endswith(".")
    try:
        return ipaddress.ip_address(record).version == _VERSIONS[type_]
    except ValueError:
        return False


def _is_text(record: str) -> bool:
    """Whether Designate takes the strings of a TXT record: a plain word, or quoted; one that is too
    long is several quoted ones."""
    if len(record) <= _LONGEST_TEXT:
        return _is_string(record)
    parts = record.strip('"').split('" "')
    quoted = len(parts) > 1 or (record.startswith('"') and record.endswith('"'))
    return quoted and all(_is_string(f'"{part}"') for part in parts)


def _is_string(text: str) -> bool:
    if len(text) > _LONGEST_TEXT or "\n" in text or text.endswith("\\"):
        return False
    if text.startswith('"') != text.endswith('"'):
        return False
    if not text.startswith('"'):
        return not any(each.isspace() for each in text)
    return not _STRAY_QUOTE.search(text.strip('"'))


_PAGING = frozenset({"limit", "marker", "sort_key", "sort_dir"})
_FILTERS = frozenset({"name", "type", "status", "description", "ttl"})


def _refuse_filters(call: Call, *more: str) -> None:
    """Refuse a listing by what Designate does not filter by, such as an id."""
    if unknown := call.request.query_params.keys() - _PAGING - _FILTERS - set(more):
        raise refused(400, "bad_request", f"Invalid filters {', '.join(sorted(unknown))}")


def _list_zones(call: Call) -> Any:
    _refuse_filters(call, "email")
    name, rows = call.query("name"), call.emulation.state.zones.values()
    found = [zone for zone in rows if call.sees(zone.project_id) and name in (None, zone.name)]
    return {"zones": [_zone_view(zone) for zone in found], "metadata": {"total_count": len(found)}}


def _create_zone(call: Call) -> Any:
    name = str(call.body.get("name"))
    if any(zone.name == name for zone in call.emulation.state.zones.values()):
        words = "Zone already exists, owned by a different tenant"
        raise refused(409, "duplicate_zone", words)
    zone = Zone(new_id(), call.project_id, name, str(call.body.get("email")))
    call.emulation.state.zones[zone.id] = zone
    call.emulation.changed()
    return 202, _zone_view(zone)


def _delete_zone(call: Call) -> Any:
    zone, state = _zone(call), call.emulation.state
    for each in [each for each in state.recordsets.values() if each.zone_id == zone.id]:
        del state.recordsets[each.id]
    del state.zones[zone.id]
    call.emulation.changed()
    return 202, _zone_view(zone)


def _list_recordsets(call: Call) -> Any:
    _refuse_filters(call, "data")
    zone, name, type_ = _zone(call), call.query("name"), call.query("type")
    found = [
        each
        for each in _shown(call, zone)
        if name in (None, each.name) and type_ in (None, each.type)
    ]
    rows = [_view(each, zone) for each in found]
    return {"recordsets": rows, "metadata": {"total_count": len(rows)}}


def _create_recordset(call: Call) -> Any:
    zone, type_, name = _zone(call), str(call.body.get("type")), str(call.body.get("name"))
    asked = _asked(call, type_, {"name", "type", "records", "ttl", "description"})
    if not name.endswith("."):
        raise _invalid(f"Host name {name} does not end with a dot")
    if not f".{name}".endswith(f".{zone.name}"):
        words = "RecordSet is not contained within it's parent zone"
        raise refused(400, "invalid_recordset_location", words)
    others = [each.type for each in _shown(call, zone) if each.name == name]
    if type_ in others:
        raise refused(409, "duplicate_recordset", "Duplicate RecordSet")
    if others and "CNAME" in (type_, *others):
        words = "CNAME recordsets may not share a name with any other records"
        raise refused(400, "invalid_recordset_location", words)
    made = Recordset(new_id(), zone.id, name, type_, list(asked["records"]))
    made.ttl, made.description = asked.get("ttl"), asked.get("description")
    call.emulation.state.recordsets[made.id] = made
    _settle_later(call.emulation, made)
    return 202, _view(made, zone)


def _show_recordset(call: Call) -> Any:
    zone = _zone(call)
    return _view(_recordset(call, zone), zone)


def _update_recordset(call: Call) -> Any:
    zone = _zone(call)
    recordset = _recordset(call, zone)
    asked = _asked(call, recordset.type, {"records", "ttl", "description"})
    recordset.records = list(asked.get("records", recordset.records))
    recordset.ttl = asked.get("ttl", recordset.ttl)
    recordset.description = asked.get("description", recordset.description)
    recordset.status = "PENDING"
    _settle_later(call.emulation, recordset)
    return 202, _view(recordset, zone)


def _delete_recordset(call: Call) -> Any:
    zone = _zone(call)
    recordset = _recordset(call, zone)
    recordset.deleted, recordset.status = True, "PENDING"
    _settle_later(call.emulation, recordset)
    return 202, _view(recordset, zone)


def _versions(call: Call) -> Any:
    """GET /: where the API is."""
    links = [{"rel": "self", "href": f"{call.emulation.url}/dns/v2"}]
    return {"versions": {"values": [{"id": "v2", "status": "CURRENT", "links": links}]}}


def routes() -> list[Route]:
    """Designate's routes."""
    zones, zone = "/dns/v2/zones", "/dns/v2/zones/{zone_id}"
    recordsets, recordset = f"{zone}/recordsets", f"{zone}/recordsets/{{recordset_id}}"
    table = (
        (zones, _list_zones, "zone_list", "GET"),
        (zones, _create_zone, "zone_create", "POST"),
        (zone, _delete_zone, "zone_delete", "DELETE"),
        (recordsets, _list_recordsets, "recordset_list", "GET"),
        (recordsets, _create_recordset, "recordset_create", "POST"),
        (recordset, _show_recordset, "recordset_show", "GET"),
        (recordset, _update_recordset, "recordset_update", "PUT"),
        (recordset, _delete_recordset, "recordset_delete", "DELETE"),
    )
    return [
        endpoint(SERVICE, "/dns", _versions, "versions", public=True),
        endpoint(SERVICE, "/dns/", _versions, "versions", public=True),
        *(
            endpoint(SERVICE, path, handler, name, [method])
            for path, handler, name, method in table
        ),
    ]
