# SPDX-License-Identifier: Apache-2.0
"""Which requests are answered: only those of the operator's own browser."""

from __future__ import annotations

import re

import pytest
import requests

from mistral_failover.ui import access
from mistral_failover.ui.access import HEADERS, LASTS, LoginSessions
from mistral_failover.ui.serving import serving
from support.ui_answers import Answers
from ui.conftest import Opened

PAUSE = {"what": "pause", "group": "payments", "because": "new disks"}


def test_without_a_login_nothing_is_shown(opened: Opened) -> None:
    answers = Answers()
    browser = opened(answers, login=False)

    for path in ("/", "/group?name=payments", "/live?page=/", "/order?what=pause&group=payments"):
        answer = browser.get(path)
        assert answer.status_code == 401
        assert "payments" not in answer.text
    assert browser.session.post(f"{browser.url}/order", data=PAUSE, timeout=10).status_code == 401
    assert answers.asked == []


def test_a_web_socket_is_not_opened(opened: Opened) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    upgrade |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}

    assert opened(login=False).get("/live?page=/", headers=upgrade).status_code == 401


def test_a_link_logs_in_once(opened: Opened) -> None:
    browser, (first, *_) = (found := opened(login=False)), list(found.links)

    browser.login()
    again = requests.get(first, timeout=10)

    assert browser.get("/").status_code == 200
    assert again.status_code == 403
    assert "used before" in again.text
    assert len(browser.links) == 2
    assert browser.links[1] != first


@pytest.mark.parametrize("token", ["", "x", "é", "a" * 43])
def test_a_wrong_link_is_refused_and_the_right_one_still_works(opened: Opened, token: str) -> None:
    browser = opened(login=False)

    refused = browser.get("/login", params={"token": token})

    assert refused.status_code == 403
    assert browser.login().status_code == 200


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(opened: Opened) -> None:
    browser = opened(login=False)
    answer = browser.session.get(browser.links[0], allow_redirects=False, timeout=10)

    cookie = answer.headers["Set-Cookie"]
    assert answer.status_code == 303
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert browser.links[0].rpartition("=")[2] not in cookie


def test_a_session_ends_after_its_time_and_at_the_logout() -> None:
    now = [0.0]
    links: list[str] = []
    door = LoginSessions(links.append, lambda: now[0])
    door.open()
    first = door.login(links[-1])
    second = door.login(links[-1])
    assert first
    assert second

    door.logout(first)
    now[0] = LASTS - 1

    assert door.session(first) is None
    assert door.session(second) is not None
    now[0] = LASTS
    assert door.session(second) is None


def test_the_oldest_of_too_many_sessions_ends() -> None:
    links: list[str] = []
    door = LoginSessions(links.append)
    door.open()
    cookies = [door.login(links[-1]) or "" for _ in range(access.SESSIONS + 1)]

    assert door.session(cookies[0]) is None
    assert all(door.session(cookie) for cookie in cookies[1:])


def test_a_log_out_needs_the_token_too(opened: Opened) -> None:
    browser = opened()

    refused = browser.session.post(f"{browser.url}/logout", data={"csrf": "x"}, timeout=10)
    assert refused.status_code == 403
    assert browser.get("/").status_code == 200
    assert browser.post("/logout").status_code == 200
    assert browser.get("/").status_code == 401


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "", "127.0.0.1:x", "127.0.0.1:65536", "192.0.2.1"],
)
def test_a_name_that_was_rebound_to_loopback_is_refused(opened: Opened, host: str) -> None:
    browser = opened()
    for path in ("/", "/login", "/static/ui.css"):
        assert browser.get(path, headers={"Host": host}).status_code in (400, 403)


@pytest.mark.parametrize("host", ["localhost:9999", "127.0.0.1:1", "[::1]:8991", "LOCALHOST"])
def test_a_tunnel_may_have_another_port_at_its_other_end(opened: Opened, host: str) -> None:
    assert opened().get("/static/ui.css", headers={"Host": host}).status_code == 200


def test_every_address_that_it_may_listen_on_is_one_of_its_names() -> None:
    links: list[str] = []
    with serving(Answers(), "127.0.0.2", 0, read_only=True, announce=links.append):
        assert requests.get(links[0], timeout=10).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_requests_of_other_sites_are_refused_even_with_the_cookie(
    opened: Opened, headers: dict[str, str]
) -> None:
    assert opened().get("/", headers=headers).status_code == 403


@pytest.mark.parametrize("csrf", [None, "", "x", "é"])
def test_a_form_without_the_token_orders_nothing(opened: Opened, csrf: str | None) -> None:
    answers = Answers()
    browser = opened(answers)
    fields = PAUSE if csrf is None else PAUSE | {"csrf": csrf}

    answer = browser.session.post(f"{browser.url}/order", data=fields, timeout=10)

    assert answer.status_code == 403
    assert "failover.pause" not in [action for action, _ in answers.asked]


def test_the_token_of_another_session_is_no_good(opened: Opened) -> None:
    browser = opened()
    foreign = browser.csrf()
    browser.login()

    fields = PAUSE | {"csrf": foreign}
    assert browser.session.post(f"{browser.url}/order", data=fields, timeout=10).status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "multipart/form-data", ""])
def test_only_forms_are_read(opened: Opened, kind: str) -> None:
    browser = opened()
    answer = browser.session.post(
        f"{browser.url}/order", data=b"{}", headers={"Content-Type": kind}, timeout=10
    )
    assert answer.status_code == 415


def test_a_form_that_is_too_large_is_refused(opened: Opened) -> None:
    answer = opened().post("/order", because="x" * access.LARGEST)
    assert answer.status_code == 413


def test_every_answer_forbids_what_is_not_from_here(opened: Opened) -> None:
    browser = opened()
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy

    for path in ("/", "/nothing", "/static/ui.css", "/login?token=x", "/group?name=payments"):
        headers = browser.get(path).headers
        assert {name: headers[name] for name in HEADERS} == dict(HEADERS)
    refused = browser.get("/", headers={"Host": "evil.example"})
    assert refused.headers["Content-Security-Policy"] == policy


def test_no_page_has_a_script_or_a_style_of_its_own(opened: Opened) -> None:
    browser = opened()
    for path in ("/", "/group?name=payments", "/history", "/plan?group=payments&verb=failover"):
        page = browser.get(path).text
        assert re.findall(r"<script(?! src=\"/static/)", page) == []
        assert re.findall(r"<style|\sstyle=|\son[a-z]+=|javascript:", page) == []
        assert re.findall(r"(?:src|href|action)=\"(?![/#])", page) == []
