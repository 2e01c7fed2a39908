# SPDX-License-Identifier: Apache-2.0
"""A deletion proves something when the compute service's own record of it says Success.

Nova keeps these records (os-instance-actions) beyond the deletion and shows them to the owner.
"""

import pytest
from keystoneauth1.token_endpoint import Token

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import delete_server
from mistral_failover.cloud.transport import GuardedSession, Unguarded
from mistral_failover.settings import Settings

BASE = "/compute/v2.1"


class Nova:
    """Answers for one server that is gone; its actions are what a test says."""

    def __init__(self, url):
        self.url = url
        self.actions = []
        self.events = {}
        self.hidden = False
        self.exists = False
        self.host_status = None
        self.page = 1000

    def __call__(self, request):
        path = request.path.split("?")[0].rstrip("/")
        if path == BASE:
            link = {"rel": "self", "href": self.url + BASE}
            version = {"id": "v2.1", "status": "CURRENT", "links": [link]}
            return 200, {}, {"version": {**version, "version": "2.96", "min_version": "2.1"}}
        if path == f"{BASE}/servers/s1" and self.exists:
            return self.server(request)
        if path == f"{BASE}/servers":
            return 200, {}, {"servers": [{"id": "s1"}] if self.exists else []}
        if self.hidden or "os-instance-actions" not in path:
            return 404, {}, {"itemNotFound": {"code": 404, "message": "Instance s1: not found"}}
        if path.endswith("os-instance-actions"):
            marker = request.path.partition("marker=")[2]
            ids = ["", *(row["request_id"] for row in self.actions)]
            first = ids.index(marker)
            last = first + self.page
            more = {"links": [{"rel": "next", "href": ""}]} if last < len(self.actions) else {}
            return 200, {}, {"instanceActions": self.actions[first:last], **more}
        events = self.events[path.rsplit("/", 1)[1]]
        # A list of lists is what one look after the other finds.
        if events and isinstance(events[0], list):
            events = events.pop(0) if len(events) > 1 else events[0]
        return 200, {}, {"instanceAction": {"action": "delete", "events": events}}

    def server(self, request):
        if request.method == "DELETE":
            self.exists = False
            return 204, {}, None
        shown = {
            "id": "s1",
            "status": "ACTIVE",
            "OS-EXT-STS:task_state": None,
            "OS-EXT-STS:power_state": 1,
            "os-extended-volumes:volumes_attached": [],
        }
        if self.host_status:
            shown["host_status"] = self.host_status
        return 200, {}, {"server": shown}

    def record(self, request_id, *events, action="delete"):
        begun = "2026-01-01T00:00:00.000000"
        row = {"action": action, "request_id": request_id, "start_time": begun}
        self.actions.append(row)
        self.events[request_id] = list(events)


def event(result, name="compute_terminate_instance", start="2026-01-01T00:00:00.000000"):
    return {"event": name, "start_time": start, "finish_time": start, "result": result}


@pytest.fixture
def nova(server):
    server.reply = Nova(server.url)
    return server.reply


@pytest.fixture
def judge(server):
    def delete(limit=5):
        session = GuardedSession(
            guard=Unguarded(), timeout=5, auth=Token(server.url + BASE, "a-token")
        )
        settings = Settings(poll_first=0.01, poll_ceiling=0.05)
        return delete_server(Cloud(session, settings), "s1", limit)

    return delete


LATER = "2026-01-01T00:00:09.000000"
HIDDEN, UP = {"exists": True, "host_status": None}, {"exists": True, "host_status": "UP"}
PROVEN, NOT_PROVEN = (True, ""), (False, "")
RECORDS = {
    "a success": ({}, [[event("Success")]], (True, "compute_terminate_instance")),
    "a success where a policy hides the state of hosts": (HIDDEN, [[event("Success")]], PROVEN),
    "nothing of the compute service": ({}, [[]], NOT_PROVEN),
    "nothing of a compute service that seemed up": (UP, [[]], NOT_PROVEN),
    "a failure": ({}, [[event("Error")]], (False, "Error")),
    "one success of several": ({}, [[event("Success")], [event("Error", start=LATER)]], PROVEN),
    "one that ends later": ({}, [[[event(None)], [event(None)], [event("Success")]]], PROVEN),
}


@pytest.mark.parametrize(("shown", "records", "outcome"), RECORDS.values(), ids=RECORDS)
def test_what_the_record_of_a_deletion_proves(nova, judge, shown, records, outcome):
    vars(nova).update(shown)
    for number, events in enumerate(records):
        nova.record(f"req-{number}", *events)
    evidence = judge()
    assert (evidence.proven, outcome[1] in evidence.observed) == (outcome[0], True)


def test_other_actions_prove_nothing(nova, judge):
    nova.record("req-1", event("Success", name="compute_stop_instance"), action="stop")
    assert not judge().proven


@pytest.mark.parametrize("host_status", ["UP", None])
def test_without_records_it_is_no_proof_whatever_the_host_was(nova, judge, host_status):
    nova.exists, nova.hidden, nova.host_status = True, True, host_status
    evidence = judge()
    assert not evidence.proven
    assert "os_compute_api:os-instance-actions:list" in evidence.observed


@pytest.mark.parametrize("page", [1, 2, 100])
def test_an_evacuation_on_a_later_page_of_its_actions_counts(nova, judge, page):
    nova.page = page
    nova.record("req-3", event("Success"))
    nova.record("req-2", event("Success", name="compute_start_instance"), action="start")
    nova.record("req-1", event("Success", name="compute_rebuild_instance"), action="evacuate")
    assert not judge().proven


def test_a_nova_that_cannot_be_asked_is_an_error_and_no_evidence(nova, judge, server):
    server.reply = lambda request: (401, {}, {"error": {"code": 401, "message": "no"}})
    with pytest.raises(CloudError) as raised:
        judge()
    assert raised.value.code == "TOKEN_EXPIRED"
