# SPDX-License-Identifier: Apache-2.0
"""What a service answers, or does not answer, becomes one error with a stable code."""

import json

import pytest
import requests
from keystoneauth1 import exceptions as keystone

from mistral_failover.cloud.errors import (
    CloudError,
    Fate,
    fate_by_status,
    fate_without_answer,
    refusal,
    translate,
    translated,
)
from mistral_failover.cloud.transport import LeaseLost

TOKEN = "gAAAAABk-0123456789abcdefghijklmnopqrstuvwxyz"


def response(status, message, name="error"):
    answer = requests.Response()
    answer.status_code = status
    answer._content = json.dumps({name: {"code": status, "message": message}}).encode()
    answer.headers["Content-Type"] = "application/json"
    answer.headers["x-openstack-request-id"] = "req-1"
    answer.url = "http://cloud/thing"
    return answer


def from_keystoneauth(status, message):
    return keystone.from_response(response(status, message), "GET", "http://cloud/thing")


@pytest.mark.parametrize(
    ("status", "message", "code", "retryable"),
    [
        (400, "Invalid input received", "BAD_REQUEST", False),
        (
            400,
            "Invalid volume: volume 1 status must be available or downloading to reserve, but "
            "the current status is in-use.",
            "VOLUME_IN_USE",
            False,
        ),
        (400, "Volume status must be 'in-use' to detach", "BAD_REQUEST", False),
        (401, "The request you have made requires authentication.", "TOKEN_EXPIRED", False),
        (403, "Policy doesn't allow it", "FORBIDDEN", False),
        (403, "Quota exceeded for instances: Requested 1, but already used 10", "QUOTA", False),
        (404, "Instance 1 could not be found.", "NOT_FOUND", False),
        (409, "Cannot 'stop' instance 1 while it is in task_state deleting", "CONFLICT", True),
        (409, "Service is unavailable at this time.", "HOST_DOWN", False),
        (409, "Compute service of cmp1 is unavailable at this time.", "HOST_DOWN", False),
        (413, "VolumeLimitExceeded: Maximum number of volumes allowed (10)", "QUOTA", False),
        (413, "Over limit", "RATE_LIMITED", True),
        (429, "Too many requests", "RATE_LIMITED", True),
        (500, "Unexpected API Error.", "SERVER_ERROR", True),
        (503, "Service Unavailable", "SERVER_ERROR", True),
        (504, "Gateway Timeout", "TIMEOUT", True),
    ],
)
def test_what_an_answer_means(status, message, code, retryable):
    error = refusal(response(status, message), "do the thing", "Nova")
    assert (error.code, error.retryable, error.http_status) == (code, retryable, status)
    assert error.message == f"Could not do the thing: {message} (HTTP {status})"
    assert error.remedy


def test_no_token_gets_into_the_text():
    error = translate(from_keystoneauth(404, f"Could not find token: {TOKEN}."), "validate it")
    assert TOKEN not in str(error)
    assert TOKEN not in json.dumps(vars(error))


@pytest.mark.parametrize(
    "text",
    [
        "X-Auth-Token: 0123456789abcdef0123456789abcdef",
        '{"token_id": "0123456789abcdef0123456789abcdef"}',
        '{"password": "0123456789abcdef0123456789abcdef"}',
        "secret=0123456789abcdef0123456789abcdef",
        "eyJhbGciOiJ9.0123456789abcdef0123456789abcdef.0123456789abcdef0123456789abcdef",
    ],
)
def test_what_looks_like_a_secret_is_left_out(text):
    assert "0123456789abcdef" not in str(CloudError("UNEXPECTED", f"It said {text} and more"))


def test_ids_and_task_states_stay_readable():
    text = "server 0b5e9d2c-9a4f-4e0f-9a53-0d5f0c1e7a11 is in task_state powering-off"
    assert CloudError("CONFLICT", text).message == text


@pytest.mark.parametrize(
    ("raised", "code", "retryable"),
    [
        (keystone.ConnectTimeout("timed out"), "TIMEOUT", True),
        (keystone.ConnectFailure("refused"), "UNREACHABLE", True),
        (keystone.DiscoveryFailure("no versions"), "UNREACHABLE", True),
        (keystone.SSLError("self-signed"), "UNREACHABLE", False),
        (keystone.EndpointNotFound(), "NO_ENDPOINT", False),
        (keystone.MissingAuthPlugin(), "CREDENTIAL_REFUSED", False),
        (requests.ReadTimeout("slow"), "TIMEOUT", True),
        (requests.ConnectionError("refused"), "UNREACHABLE", True),
        (keystone.ClientException("odd"), "UNEXPECTED", False),
    ],
)
def test_failures_without_an_answer_have_codes_too(raised, code, retryable):
    error = translate(raised, "reach the cloud")
    assert (error.code, error.retryable, error.http_status) == (code, retryable, None)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Content-Type": "text/html"}, "UNREACHABLE"),
        ({"Content-Type": "text/html", "X-OpenStack-Request-ID": "req-1"}, "NOT_FOUND"),
        ({"Content-Type": "application/json"}, "NOT_FOUND"),
    ],
)
def test_only_the_service_itself_says_that_something_does_not_exist(headers, code):
    answer = response(404, "not here")
    answer.headers.clear()
    answer.headers.update(headers)
    assert refusal(answer, "read it", "Nova").code == code


def test_the_request_id_is_kept_for_the_operator():
    assert translate(from_keystoneauth(500, "oops"), "do it").request_id == "req-1"


def test_a_lost_lease_passes_as_it_is():
    lost = LeaseLost("The lease has ended.")
    assert translate(lost, "do it") is lost
    with pytest.raises(LeaseLost) as raised, translated("do it"):
        raise lost
    assert raised.value is lost
    assert not lost.retryable


def test_the_original_error_is_not_shown_beside_the_translated_one():
    with pytest.raises(CloudError) as raised, translated("do it"):
        raise from_keystoneauth(404, TOKEN)
    assert raised.value.__suppress_context__


def test_an_error_of_programming_is_not_disguised():
    with pytest.raises(KeyError), translated("do it"):
        raise KeyError("typo")


AWAY = (
    "Property error: : resources.on_lost.properties.tasks[0].workflow: : Unable to establish "
    "connection to http://10.0.0.5:8989/v2/workflows/failover.on_alarm?namespace=: "
    "HTTPConnectionPool(host='10.0.0.5', port=8989): Max retries exceeded"
)
"""What Heat answers to an update of a stack while Mistral's API is away."""


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        (AWAY, "it cannot reach 10.0.0.5:8989"),
        ("resources.a: Request to https://nova.example.org/v2.1/ timed out", "nova.example.org"),
        ("Error validating value 'm1': Service Unavailable (HTTP 503)", "HTTP 503"),
        # Of Glance's client, below Heat's.
        ("resources.db_a.properties.image: : HTTP 500 Internal Server Error: erred.", "HTTP 500"),
    ],
)
def test_a_service_that_cannot_reach_another_one_refuses_nothing_for_good(message, detail):
    error = refusal(response(400, message), "update the stack", "Heat", changes=True)

    assert (error.code, error.transient, error.retryable) == ("UNREACHABLE", True, True)
    assert detail in error.detail
    assert not error.unknown, "it was refused"


@pytest.mark.parametrize("message", ["Unable to establish what it is", "not found (HTTP 404)"])
def test_other_refusals_stay_refusals(message):
    error = refusal(response(400, message), "update the stack", "Heat", changes=True)

    assert (error.code, error.transient) == ("BAD_REQUEST", False)


@pytest.mark.parametrize(
    ("asked", "status", "fate"),
    [
        ("POST /servers/1/os-volume_attachments", 200, Fate.SETTLED),
        ("DELETE /servers/1/os-volume_attachments/2", 202, Fate.SETTLED),  # it shows "detaching"
        ("DELETE /servers/1/os-interface/2", 202, Fate.SILENT),  # nothing shows that it is accepted
        ("DELETE /servers/1/os-interface/2", 409, Fate.SETTLED),
        ("PATCH /v1/p/stacks/s/1", 202, Fate.FAILED),  # Heat's older engine starts it later
        ("PUT /v2.0/ports/1", 404, Fate.SETTLED),
        ("PUT /v2.0/ports/1", 429, Fate.SETTLED),
        ("PUT /v2.0/ports/1", 500, Fate.FAILED),
        ("PUT /v2.0/ports/1", 503, Fate.FAILED),
        ("PUT /v2.0/ports/1", 504, Fate.SILENT),
    ],
)
def test_what_an_answer_leaves_of_a_request(asked: str, status: int, fate: Fate) -> None:
    assert fate_by_status(asked, status) is fate


@pytest.mark.parametrize(
    ("error", "fate"),
    [
        (requests.ConnectionError(ConnectionRefusedError()), Fate.SETTLED),
        (requests.ConnectTimeout(), Fate.SETTLED),
        (LeaseLost("the lease has ended"), Fate.SETTLED),  # asked for right before the bytes leave
        (requests.ConnectionError(ConnectionResetError()), Fate.FAILED),
        (requests.ReadTimeout(), Fate.SILENT),
    ],
)
def test_what_a_call_without_an_answer_leaves_of_a_request(error: Exception, fate: Fate) -> None:
    assert fate_without_answer(error) is fate
