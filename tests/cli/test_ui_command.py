# SPDX-License-Identifier: Apache-2.0
"""``failover ui`` over a real Mistral and an emulated cloud."""

from __future__ import annotations

import io
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from mistral_failover.loopback import NotLoopback
from mistral_failover.ui.action_client import ActionFailed, MistralActionClient
from mistral_failover.ui.command import Ui
from mistral_failover.ui.serving import serving
from support.commands import failover, server_that_refuses
from support.ui_answers import Answers

PROGRAM = Path(sys.executable).with_name("failover")


class Browser:
    """A browser that has opened the link."""

    def __init__(self, link: str) -> None:
        self.url = link.partition("/login")[0]
        self.session = requests.Session()
        self.session.trust_env = False
        assert self.session.get(link, timeout=30).status_code == 200

    def page(self, path: str) -> str:
        answer = self.session.get(f"{self.url}{path}", timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.text

    def order(self, **fields: str) -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.page("/"))
        assert found is not None
        data = {"csrf": found[1], **fields}
        return self.session.post(f"{self.url}/order", data=data, timeout=30).text


def client(deployment: Any) -> MistralActionClient:
    """What the command asks with, by its options."""
    options = SimpleNamespace(
        mistral_url=deployment.mistral.url, mistral_token_file=deployment.mistral.token_file
    )
    return MistralActionClient(SimpleNamespace(options=options))


@pytest.fixture
def browser(deployment: Any) -> Iterator[Browser]:
    links: list[str] = []
    with serving(client(deployment), "127.0.0.1", 0, read_only=False, announce=links.append):
        yield Browser(links[0])


def test_the_pages_show_a_failover_that_was_made(deployment: Any, browser: Browser) -> None:
    listed, group = browser.page("/"), browser.page(f"/group?name={deployment.group}")
    found = re.search(r'href="/timeline\?id=([^&"]+)&amp;step=1"', group)
    assert found is not None
    last = browser.page(f"/timeline?id={found[1]}&step=999")
    first = browser.page(f"/timeline?id={found[1]}&step=1")
    history = browser.page("/history")

    assert f"/group?name={deployment.group}" in listed
    assert "Attach data to db_b" in group
    assert "◆ " in group
    assert "to be active" in first
    assert "volume is here" in last
    assert found[1] in history


def test_a_plan_changes_nothing_and_an_order_does(deployment: Any, browser: Browser) -> None:
    group = "seen"
    deployment.protect(group)

    plan = browser.page(f"/plan?group={group}&verb=failover&lost=db_a")
    assert "Fence db_a" in plan
    assert deployment.status(group)["pause"] is None

    said = browser.order(what="pause", group=group, because="a test of the page")
    assert "alarms are held" in said
    assert deployment.status(group)["pause"]["because"] == "a test of the page"
    browser.order(what="resume", group=group, because="done")
    assert deployment.status(group)["pause"] is None


def test_a_plan_that_is_started_from_the_page_is_carried_out(
    deployment: Any, browser: Browser
) -> None:
    group = "moved"
    deployment.protect(group)
    page = browser.page(f"/plan?group={group}&verb=switchover&to=db_b")
    found = re.search(r"what=start&amp;group=moved&amp;plan=([0-9a-f-]+)", page)
    assert found is not None

    said = browser.order(what="start", group=group, plan=found[1], typed=group)

    execution = re.search(r"Started as execution ([0-9a-f-]+)", said)
    assert execution is not None
    assert deployment.mistral.client.wait(execution[1])["state"] == "SUCCESS"
    assert deployment.status(group)["roles"] == {"active": "db_b"}


def test_the_list_shows_a_failed_host_on_which_no_member_is_known(
    deployment: Any, browser: Browser
) -> None:
    deployment.shown("host-lost", "cmp-nowhere", "--because", "it burned")
    time.sleep(1.1)  # answers are remembered for a second

    page = browser.page("/")
    found = re.search(r"failover dismiss ([0-9a-f-]+) --because WHY", page)

    assert "no group of this project is known to have a member on cmp-nowhere" in page
    assert found is not None
    deployment.shown("dismiss", found[1], "--because", "a test of the page")


def test_a_host_that_is_reported_from_the_page_is_an_alarm_about_each_group_there(
    deployment: Any, browser: Browser
) -> None:
    group = "on-a-host"
    deployment.protect(group)
    for row in deployment.shown("group", "list"):
        if deployment.status(row["name"])["pause"] is None:
            deployment.shown("pause", row["name"], "--because", "a test of the page")
    servers = {row["member"]: row["server"] for row in deployment.shown("member", "list", group)}
    host = str(deployment.cloud.guests()[servers["db_a"]]["host"])

    form = browser.page(f"/order?what=host-lost&host={host}")
    report = re.search(r'name="report" value="([^"]+)"', form)
    assert report is not None
    order = {"host": host, "report": report[1], "because": "it burned", "typed": host}
    said = browser.order(what="host-lost", **order)
    again = browser.order(what="host-lost", **order)

    assert f"{group} (" in form
    assert f"<h1>Host {host} " in said
    assert f'href="/group?name={group}"' in said
    assert "a repeat of a known incident" in again
    assert len(deployment.shown("alarms", group)) == 1
    deployment.shown("dismiss", "--host", host, "--because", "a test of the page")
    for row in deployment.shown("group", "list"):
        deployment.shown("resume", row["name"])


def test_an_unknown_group_is_said(deployment: Any) -> None:
    with pytest.raises(ActionFailed) as refused:
        client(deployment).run_action("failover.status", group="nowhere")
    assert refused.value.code == "UNKNOWN_GROUP"


def test_a_mistral_that_is_away_is_trouble_and_asked_anew() -> None:
    options = SimpleNamespace(mistral_url="http://127.0.0.1:9/v2")
    away = MistralActionClient(SimpleNamespace(options=options))
    for _ in range(2):
        with pytest.raises(ActionFailed) as refused:
            away.run_action("failover.status")
        assert refused.value.code == "MISTRAL_UNREACHABLE"


def announced(deployment: Any, folder: Path) -> Path:
    """A state directory in which a server announces the deployment's Mistral."""
    facts = {"url": deployment.mistral.url, "token_file": str(deployment.mistral.token_file)}
    (folder / "server.json").write_text(json.dumps(facts), "utf-8")
    return folder


@pytest.fixture(params=["--mistral-url", "--embedded", "--os-cloud"])
def where(
    request: pytest.FixtureRequest,
    deployment: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[list[str], str]:
    """The options that lead to a Mistral, and a group there."""
    if request.param == "--mistral-url":
        token = str(deployment.mistral.token_file)
        words = ["--mistral-url", deployment.mistral.url, "--mistral-token-file", token]
        return words, deployment.group
    if request.param == "--embedded":
        folder = announced(deployment, tmp_path)
        return ["--embedded", "--server-state", str(folder)], deployment.group
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(deployment.folder / "clouds.yaml"))
    words, file = ["--os-cloud", "emulated"], deployment.file("drawn")  # in another project
    made = failover(*words, "group", "create", str(file), "--no-activate")
    assert made.returncode == 0, made.stderr
    return words, "drawn"


def test_it_prints_a_link_and_ends_at_a_signal(where: tuple[list[str], str]) -> None:
    options, group = where
    words = [str(PROGRAM), *options, "ui", "--listen", "127.0.0.1:0", "--read-only"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            browser = Browser(line.split(": ", 1)[1].strip())
            page = browser.page(f"/group?name={group}")
        finally:
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=20)

    assert line.startswith("Open (once): http://127.0.0.1:")
    assert f"<h1>{group}" in page
    assert "/order" not in page
    assert process.returncode == 0
    assert err == ""
    assert out.count("/login?token=") == 1, "a link was used, so another one is printed"


def test_it_is_served_beside_a_server_that_announces_itself(
    deployment: Any, tmp_path: Path
) -> None:
    folder, written = announced(deployment, tmp_path), io.StringIO()

    with Ui.beside(folder, written, ("127.0.0.1", 0), read_only=False):
        link = written.getvalue().split(": ", 1)[1].strip()
        assert f"/group?name={deployment.group}" in Browser(link).page("/")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--ui", "nonsense"], 2, "expected HOST:PORT"),
        (["--ui", "0.0.0.0:0"], 1, "LOOPBACK_ONLY"),
        (["--ui", "localhost:0"], 1, "LOOPBACK_ONLY"),
        (["--ui-orders"], 1, "--ui-orders needs --ui"),
    ],
    ids=["nonsense", "anywhere", "a name", "orders alone"],
)
def test_a_server_refuses_what_its_page_cannot_do_before_it_starts(
    tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    folder = tmp_path / "state"

    done = server_that_refuses(folder, *words)

    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert not folder.exists()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:0", "[::]:0"])
def test_it_listens_on_loopback_only(address: str) -> None:
    done = failover("ui", "--listen", address)

    assert done.returncode == 1
    assert "LOOPBACK_ONLY" in done.stderr


def test_a_name_is_no_address_and_a_port_may_be_taken() -> None:
    named = failover("ui", "--listen", "localhost:0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(OSError, match="in use"),
            serving(Answers(), "127.0.0.1", port, read_only=True, announce=print),
        ):
            pass

    assert named.returncode == 1
    assert "LOOPBACK_ONLY" in named.stderr


def test_serving_anywhere_is_refused_by_the_function_too() -> None:
    with (
        pytest.raises(NotLoopback),
        serving(Answers(), "0.0.0.0", 0, read_only=True, announce=print),  # noqa: S104
    ):
        pass


def test_without_its_packages_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mistral_failover.ui.command._NEEDED", ("not_there",))
    done = failover("ui")

    assert done.returncode == 1
    assert "The page needs not_there" in done.stderr
    assert "pip install 'mistral-failover[ui]'" in done.stderr


def test_a_mistral_that_is_away_is_said_before_anything_is_served() -> None:
    done = failover("--mistral-url", "http://127.0.0.1:9/v2", "ui", "--listen", "127.0.0.1:0")

    assert done.returncode == 1
    assert "MISTRAL_UNREACHABLE" in done.stderr
    assert "login" not in done.stdout
