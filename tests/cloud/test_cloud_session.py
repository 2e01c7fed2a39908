# SPDX-License-Identifier: Apache-2.0
"""Every HTTP call asks the guard first, and a request's token is used as it is."""

import gzip
import socket
import ssl
import subprocess
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest import mock

import pytest
from keystoneauth1 import exceptions as keystone
from keystoneauth1.adapter import Adapter
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from mistral_failover.cloud import answers
from mistral_failover.cloud.errors import CloudError, Fate, translated
from mistral_failover.cloud.session import session_for
from mistral_failover.cloud.transport import GuardedSession, LeaseLost, Unguarded
from mistral_failover.fault_points import arm, disarm
from mistral_failover.settings import Settings

TOKEN = "gAAAAABk-0123456789abcdefghijklmnopqrstuvwxyz"


class Recorder:
    """A guard that permits a number of calls, and records which were asked for."""

    request_id = None

    def __init__(self, calls=100, seconds=5.0):
        self.left = calls
        self.seconds = seconds
        self.asked = []

    def permit(self, method):
        self.asked.append(method)
        if self.left == 0:
            raise LeaseLost("The lease has ended.")
        self.left -= 1
        return self.seconds


def guarded(guard, **options):
    return GuardedSession(guard=guard, **{"timeout": 5, **options})


def token_body(url, expires_in=3600, project="p1"):
    expires = datetime.now(UTC) + timedelta(seconds=expires_in)
    return {
        "token": {
            "methods": ["token"],
            "expires_at": expires.strftime("%Y-%m-%dT%H:%M:%S.000000Z"),
            "issued_at": "2026-01-01T00:00:00.000000Z",
            "user": {"id": "u1", "name": "demo", "domain": {"id": "d", "name": "d"}},
            "project": {"id": project, "name": "demo", "domain": {"id": "d", "name": "d"}},
            "roles": [],
            "OS-TRUST:trust": {"id": "t1"},
            "catalog": [
                {
                    "type": "compute",
                    "name": "nova",
                    "endpoints": [
                        {
                            "interface": "public",
                            "region": "RegionOne",
                            "region_id": "RegionOne",
                            "url": f"{url}/compute",
                        }
                    ],
                }
            ],
        }
    }


def security(server, token=TOKEN, **more):
    return SimpleNamespace(auth_uri=f"{server.url}/identity", auth_token=token, **more)


def session_of(server, token=TOKEN, settings=None, guard=None, **more):
    return session_for(
        security(server, token, **more),
        guard=guard or Unguarded(),
        settings=settings or Settings(),
    )


def test_the_guard_is_asked_before_each_call_with_its_method(server):
    guard = Recorder()
    session = guarded(guard)
    session.get(server.url)
    session.post(server.url, json={})
    assert guard.asked == ["GET", "POST"]
    assert len(server.seen) == 2


def test_without_permission_nothing_reaches_the_server(server):
    with pytest.raises(LeaseLost):
        guarded(Recorder(calls=0)).post(server.url, json={})
    assert server.seen == []


def test_every_call_under_a_lock_carries_its_global_request_id(server):
    guard = Recorder()
    guard.request_id = "req-6f1a1c0e-54f5-5d0c-9c53-0b8f2f6a7d11"
    guarded(guard).get(server.url)
    guarded(guard).delete(server.url)
    guarded(Unguarded()).get(server.url)
    seen = [request.headers.get("x-openstack-request-id") for request in server.seen]
    assert seen == [guard.request_id, guard.request_id, None]


def test_who_was_frozen_after_the_permission_does_not_use_it(server):
    def sleep_in(point):
        if point == "call.before":
            time.sleep(0.3)

    arm(sleep_in)
    try:
        with pytest.raises(LeaseLost, match="this POST has expired"):
            guarded(Recorder(seconds=0.2)).post(server.url, json={})
    finally:
        disarm()
    assert server.seen == []


@pytest.mark.parametrize("through", ["", "a proxy"])
def test_what_connects_for_longer_than_the_permission_sends_nothing(server, monkeypatch, through):
    session = guarded(Recorder(seconds=0.1))
    if through:
        session.session.proxies = {"http": server.url}
    look_up = socket.getaddrinfo

    def slowly(*asked, **options):
        time.sleep(0.2)
        return look_up(*asked, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slowly)

    with pytest.raises(LeaseLost, match="this POST has expired"):
        session.post(f"{server.url}/x")

    assert server.seen == []


def test_a_redirect_is_a_call_of_its_own(server):
    moved = (302, {"Location": f"{server.url}/b", "X-OpenStack-Request-ID": "req-1"}, {})
    server.reply = lambda request: moved if request.path == "/a" else (200, {}, {})
    with pytest.raises(LeaseLost):
        guarded(Recorder(calls=1)).get(f"{server.url}/a")
    assert server.calls == ["GET /a"]


def test_a_repeat_is_a_call_of_its_own(server):
    server.reply = lambda request: (503, {"Retry-After": "0"}, {})
    with pytest.raises(LeaseLost):
        guarded(Recorder(calls=2)).get(server.url, status_code_retries=5)
    assert len(server.seen) == 2


class Hearing(Recorder):
    """A guard that also records which services were overloaded."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def overloaded(self, service, pause):
        self.heard.append((service, pause))

    def waits_for(self, error):
        """Nothing waits here."""


def ask(server, guard, timeout=5):
    """Ask Nova; returns nothing, whatever it answers."""
    filters = {"service_type": "compute"}
    with suppress(CloudError):
        guarded(guard, timeout=timeout).get(
            server.url,
            endpoint_filter=filters,
            authenticated=False,
        )


@pytest.mark.parametrize(
    ("status", "headers", "heard"),
    [
        (429, {}, [("Nova", 0.0)]),
        (503, {"Retry-After": "7"}, [("Nova", 7.0)]),
        (503, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, [("Nova", 0.0)]),
        (504, {}, [("Nova", 0.0)]),
        (500, {}, []),
        (404, {}, []),
        (200, {"Retry-After": "7"}, []),
    ],
)
def test_the_guard_hears_which_service_is_overloaded(server, status, headers, heard):
    server.reply = lambda request: (status, headers, {})
    guard = Hearing()

    ask(server, guard)

    assert guard.heard == heard


def test_the_guard_hears_that_a_service_does_not_answer_in_time(server):
    gone = threading.Event()
    server.reply = lambda request: (gone.wait(5), (200, {}, {}))[1]
    guard = Hearing()

    ask(server, guard, timeout=0.2)
    gone.set()

    assert guard.heard == [("Nova", 0.0)]


def test_a_guard_that_hears_nothing_does_without(server):
    server.reply = lambda request: (503, {}, {})
    guard = Recorder()
    ask(server, guard)
    assert guard.asked == ["GET"]


def test_fetching_a_token_is_a_call_of_its_own(server):
    session = guarded(
        Recorder(calls=0),
        auth=v3.Password(f"{server.url}/v3", username="u", password="p", user_domain_id="d"),
    )
    with pytest.raises(LeaseLost):
        session.get(f"{server.url}/a")
    assert server.seen == []


@pytest.mark.parametrize(("timeout", "permitted"), [(30, 0.2), (0.2, 30)])
def test_a_call_ends_when_the_shorter_of_timeout_and_permission_does(server, timeout, permitted):
    release = threading.Event()
    server.reply = lambda request: (release.wait(10), (200, {}, {}))[1]
    started = time.monotonic()
    with pytest.raises(keystone.ConnectTimeout):
        guarded(Recorder(seconds=permitted), timeout=timeout).get(server.url)
    assert time.monotonic() - started < 2
    release.set()


def test_a_wall_clock_that_is_set_back_delays_no_call(server, monkeypatch):
    """keystoneauth would wait for the clock to come to where it was, under a lease that is kept."""
    service = Adapter(guarded(Recorder()))
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() - 3600)
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    assert service.get(f"{server.url}/servers/1").status_code == 200
    assert max(waited, default=0.0) < 5


def test_sessions_share_connections_but_not_guards(server):
    first, second = Recorder(), Recorder(calls=0)
    guarded(first).get(server.url)
    with pytest.raises(LeaseLost):
        guarded(second).get(server.url)
    guarded(first).get(server.url)
    assert len(server.seen) == 2


def test_a_token_is_validated_with_itself_and_never_scoped_again(server):
    server.reply = lambda request: (200, {}, token_body(server.url))
    session = session_of(server, region_name="RegionOne", project_id="p1")
    assert session.get_token() == TOKEN
    assert session.get_project_id() == "p1"
    assert session.region_name == "RegionOne"
    assert session.get_endpoint(service_type="compute", skip_discovery=True).endswith("/compute")
    assert server.calls == ["GET /identity/v3/auth/tokens"]
    assert server.seen[0].headers["x-auth-token"] == TOKEN
    assert server.seen[0].headers["x-subject-token"] == TOKEN


def test_a_token_is_validated_once_for_many_sessions(server):
    server.reply = lambda request: (200, {}, token_body(server.url))
    for _ in range(5):
        session_of(server)
    assert len(server.seen) == 1


def test_what_a_catalog_says_is_not_known_of_the_next_token(server):
    catalogs = iter(["here", "there"])
    server.reply = lambda request: (200, {}, token_body(f"{server.url}/{next(catalogs)}"))
    nova = {"service_type": "compute", "interface": "public"}

    first, again, other = (session_of(server, TOKEN + name) for name in "aab")

    assert first.get_endpoint(**nova) == again.get_endpoint(**nova)
    assert first.get_endpoint(**nova).endswith("/here/compute")
    assert other.get_endpoint(**nova).endswith("/there/compute")


def test_the_catalog_is_read_once_for_an_endpoint_with_a_version(server, monkeypatch):
    server.reply = lambda request: (200, {}, token_body(f"{server.url}/v2.1"))
    nova = {"service_type": "compute", "interface": "public", "min_version": "2.1"}
    read = mock.Mock(side_effect=Session.get_endpoint)
    monkeypatch.setattr(Session, "get_endpoint", lambda *given, **wanted: read(*given, **wanted))

    sessions = [session_of(server) for _ in range(3)]
    found = {each.get_endpoint(skip_discovery=True, **nova) for each in sessions}

    assert len(found) == 1
    assert read.call_count == 1


def test_a_service_that_did_not_say_its_versions_is_asked_again(server):
    away = [True]

    def reply(request):
        if request.path.startswith("/identity"):
            return 200, {}, token_body(server.url)
        if away:
            return 503, {}, {}
        link = {"rel": "self", "href": f"{server.url}/compute/v2.1/"}
        version = {"id": "v2.1", "status": "CURRENT", "version": "2.100", "links": [link]}
        return 200, {}, {"version": version | {"min_version": "2.1"}}

    server.reply = reply
    nova = {"service_type": "compute", "interface": "public", "min_version": "2.1"}
    before = session_of(server).get_endpoint_data(**nova)
    assert before is None or not before.max_microversion
    assert session_of(server).get_endpoint(**nova) != f"{server.url}/compute/v2.1/"
    away.clear()

    asked = len(server.seen)
    found = [session_of(server).get_endpoint_data(**nova) for _ in range(3)]

    assert {each.max_microversion for each in found} == {(2, 100)}
    assert session_of(server).get_endpoint(**nova).endswith("/compute/v2.1/")
    assert len(server.seen) == asked + 1


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, b"[" * 100_000 + b"]" * 100_000),
        ({}, b'{"a": ' + b"9" * 100_000 + b"}"),
        ({"Content-Encoding": "gzip"}, gzip.compress(b" " * 4_000_000 + b"{}")),
    ],
    ids=["deep", "a long number", "long when unpacked"],
)
@pytest.mark.parametrize("redirected", [False, True])
def test_an_answer_is_read_within_limits(server, monkeypatch, headers, body, redirected):
    monkeypatch.setattr(answers, "MAX_JSON_BYTES", 1_000_000)
    moved = (302, {"Location": f"{server.url}/b", "X-OpenStack-Request-ID": "req-1"}, {})
    server.reply = lambda request: (
        moved if redirected and request.path == "/a" else (200, headers, body)
    )
    with pytest.raises(CloudError), translated("read it"):
        guarded(Unguarded()).get(f"{server.url}/a").json()


def test_the_passwords_of_netrc_are_not_sent(server, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("default login operator password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    guarded(Unguarded()).get(server.url)
    assert "authorization" not in server.seen[0].headers


def test_the_proxy_of_the_environment_is_used(server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "")
    guarded(Unguarded()).get("http://cloud.example.org/compute")
    assert server.seen[0].path == "http://cloud.example.org/compute"


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_the_certificates_of_the_environment_count_unless_others_are_named(name, monkeypatch):
    for each in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(each, raising=False)
    assert guarded(Unguarded()).verify is True
    monkeypatch.setenv(name, "/etc/bundle.pem")
    assert guarded(Unguarded()).verify == "/etc/bundle.pem"
    assert guarded(Unguarded(), verify="/etc/own.pem").verify == "/etc/own.pem"
    assert guarded(Unguarded(), verify=False).verify is False


def test_shortly_before_its_expiry_a_token_is_validated_again(server):
    server.reply = lambda request: (200, {}, token_body(server.url, expires_in=30))
    session_of(server)
    session_of(server)
    assert len(server.seen) == 2


@pytest.mark.parametrize(
    ("body", "code"),
    [({"expires_in": -5}, "TOKEN_EXPIRED"), ({"project": "p2"}, "FORBIDDEN")],
    ids=["it expired meanwhile", "it is of another project than the request says"],
)
def test_a_token_that_gives_the_request_no_rights_is_refused(server, body, code):
    server.reply = lambda request: (200, {}, token_body(server.url, **body))
    with pytest.raises(CloudError) as raised:
        session_of(server, project_id="p1")
    assert raised.value.code == code


def test_validation_asks_the_guard_too(server):
    with pytest.raises(LeaseLost):
        session_of(server, TOKEN + "guarded", guard=Recorder(calls=0))
    assert server.seen == []


def test_validation_leaves_nothing_in_the_log(server, caplog):
    caplog.set_level("DEBUG")
    server.reply = lambda request: (200, {}, token_body(server.url))
    session_of(server, TOKEN + "logged").get(f"{server.url}/a")
    assert TOKEN not in caplog.text


@pytest.fixture
def clouds_yaml(server, tmp_path, monkeypatch):
    path = tmp_path / "clouds.yaml"
    path.write_text(
        f"""
clouds:
  drill:
    auth:
      auth_url: {server.url}/identity/v3
      username: demo
      password: demo-password
      project_name: demo
      user_domain_name: Default
      project_domain_name: Default
    region_name: RegionOne
"""
    )
    monkeypatch.setattr("openstack.config.loader.CONFIG_FILES", [str(path)])
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(path))
    return path


@pytest.mark.usefixtures("clouds_yaml")
def test_without_a_token_the_entry_of_clouds_yaml_authenticates_once(server):
    def reply(request):
        if request.method == "POST":
            return 201, {"X-Subject-Token": TOKEN}, token_body(server.url)
        link = {"rel": "self", "href": f"{server.url}/identity/v3/"}
        return 200, {}, {"version": {"id": "v3.14", "status": "stable", "links": [link]}}

    server.reply = reply
    for _ in range(2):
        session = session_for(None, guard=Unguarded(), settings=Settings(cloud="drill"))
        assert session.get_token() == TOKEN
    assert server.calls.count("POST /identity/v3/auth/tokens") == 1
    assert session.region_name == "RegionOne"


def test_an_entry_that_was_changed_counts_from_the_next_session_on(clouds_yaml):
    def region():
        return session_for(None, guard=Unguarded(), settings=Settings(cloud="drill")).region_name

    assert region() == "RegionOne"
    text = clouds_yaml.read_text()
    clouds_yaml.write_text(text.replace("RegionOne", "RegionTwo"))
    assert region() == "RegionTwo"
    clouds_yaml.write_text(text)
    assert region() == "RegionOne"


@pytest.mark.usefixtures("clouds_yaml")
@pytest.mark.parametrize(
    ("who", "cloud", "remedy"),
    [
        (None, None, "[failover] cloud"),
        (SimpleNamespace(auth_token=None), None, "[failover] cloud"),
        (SimpleNamespace(auth_token=TOKEN, auth_uri=None), None, "[failover] auth_url"),
        (None, "nowhere", "clouds.yaml"),
    ],
    ids=["nobody", "no token", "no address of Keystone", "an entry that clouds.yaml lacks"],
)
def test_what_no_session_can_be_made_of_is_a_configuration_error(who, cloud, remedy):
    with pytest.raises(CloudError) as raised:
        session_for(who, guard=Unguarded(), settings=Settings(cloud=cloud))
    assert raised.value.code == "CONFIG"
    assert remedy in raised.value.remedy


class Log(Recorder):
    """A guard that records what is asked and what became of it."""

    def __init__(self):
        super().__init__()
        self.log = []

    def unsettled(self):
        return 0.0

    def ask(self, asked):
        self.log.append(asked)
        return self.permit(asked), len(self.log)

    def ended(self, number, fate):
        self.log.append((number, fate))


def test_only_what_changes_something_in_a_service_is_recorded_and_then_its_answer(server):
    server.reply = lambda request: (202, {}, {"server": {"id": "1"}})
    log = Log()
    session = guarded(log)

    nova = Adapter(session, service_type="compute", endpoint_override=server.url)
    nova.get("/servers/1", authenticated=False)
    session.post(f"{server.url}/v3/auth/tokens", json={}, authenticated=False)
    nova.post("/servers?name=x", json={}, authenticated=False)

    assert log.log == ["POST /servers", (1, Fate.SETTLED)]


def test_who_was_frozen_after_a_request_was_recorded_does_not_send_it_late(server):
    """It counts as lost so long after its call's time as a service may hold it."""

    def sleep_in(point):
        if point == "call.before":
            time.sleep(0.4)

    server.reply = lambda request: (202, {}, {})
    log = Log()  # the lease lasts longer
    nova = Adapter(guarded(log, timeout=0.2), service_type="compute", endpoint_override=server.url)
    arm(sleep_in)
    try:
        with pytest.raises(LeaseLost, match="this POST has expired"):
            nova.post("/servers", json={}, authenticated=False)
    finally:
        disarm()

    assert (server.calls, log.log) == ([], ["POST /servers", (1, Fate.SETTLED)])


def test_a_request_that_was_sent_is_not_settled_by_what_breaks_its_answer(tmp_path):
    """The server has read it when the TLS connection breaks; the library's error is the same as
    that of a connection that never came about."""
    names, key = tmp_path / "names.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", key, "-out", names, "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
        ],
        check=True,
        capture_output=True,
    )
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(names, key)
        with context.wrap_socket(listening.accept()[0], server_side=True) as connection:
            connection.recv(65536)
            with socket.socket(fileno=connection.detach()) as raw:
                raw.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)  # no record of this connection

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    log = Log()
    url = f"https://localhost:{listening.getsockname()[1]}"
    nova = Adapter(guarded(log, verify=str(names)), service_type="compute", endpoint_override=url)
    with pytest.raises(CloudError):
        nova.post("/servers", json={}, authenticated=False)
    serving.join()

    assert log.log == ["POST /servers", (1, Fate.FAILED)]


def test_nothing_leaves_after_the_time_of_a_call_however_long_its_name_is_looked_up(
    server, monkeypatch
):
    look_up = socket.getaddrinfo

    def slow(*arguments, **options):
        time.sleep(0.4)
        return look_up(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    server.reply = lambda request: (202, {}, {})
    log = Log()
    url = server.url.replace("127.0.0.1", "localhost")
    nova = Adapter(guarded(log, timeout=0.2), service_type="compute", endpoint_override=url)

    with pytest.raises(CloudError):
        nova.post("/servers", json={}, authenticated=False)

    assert (server.calls, log.log) == ([], ["POST /servers", (1, Fate.SETTLED)])


def test_a_read_over_a_kept_connection_that_was_closed_is_sent_again_and_a_change_is_not():
    """Gateways close connections that were idle for some time; a request may be on its way."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n"
    answered = head + b'{"servers": []}'
    listening = socket.create_server(("127.0.0.1", 0))
    seen = []

    def serve():
        while True:
            with listening.accept()[0] as connection:
                seen.append(connection.recv(65536).split(b" ")[0])
                connection.sendall(answered)
                connection.recv(65536)  # and closes it unanswered

    threading.Thread(target=serve, daemon=True).start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    log = Log()
    nova = Adapter(guarded(log), service_type="compute", endpoint_override=url)
    nova.get("/servers", authenticated=False)

    nova.get("/servers", authenticated=False)
    with pytest.raises(CloudError) as raised:
        nova.post("/servers", json={}, authenticated=False)

    assert seen == [b"GET", b"GET"]
    assert raised.value.unknown
    assert log.log == ["POST /servers", (1, Fate.FAILED)]
