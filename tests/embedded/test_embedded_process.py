# SPDX-License-Identifier: Apache-2.0
"""The real Mistral as a program: its API, its end, its restart after a crash, its closed doors."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from mistral_failover.errors import CodedError
from mistral_failover.mistral import client as client_module
from mistral_failover.mistral.client import MistralClient, MistralError
from support.mistral_process import MistralProcess
from support.waiting import until

pytestmark = pytest.mark.drills

METADATA = "http://169.254.169.254/latest/meta-data/"
PROXY = {"http": "http://127.0.0.1:9"}
WORKFLOWS = {
    "greet": """\
version: '2.0'
greet:
  input: [name: nobody]
  output: {greeting: <% $.greeting %>}
  tasks:
    say:
      action: std.echo
      input: {output: <% $.name %>}
      publish: {greeting: <% task().result %>}
""",
    "hang": """\
version: '2.0'
hang:
  tasks:
    wait: {action: std.async_noop}
""",
    "parent": """\
version: '2.0'
parent:
  tasks:
    below: {workflow: hang}
""",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("workflows")
    for name, text in WORKFLOWS.items():
        (directory / f"{name}.yaml").write_text(text)
    return sorted(directory.glob("*.yaml"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, files: list[Path]) -> Iterator[MistralProcess]:
    with MistralProcess(tmp_path_factory.mktemp("state"), workflows=files) as process:
        yield process


@pytest.fixture
def client(server: MistralProcess) -> MistralClient:
    return server.client


def run_script(script: str, *args: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# --- the API -----------------------------------------------------------------------------------


def test_it_listens_on_loopback(server):
    assert server.url.startswith("http://127.0.0.1:")
    assert server.url.endswith("/v2")


def test_a_workflow_runs_and_gives_its_output(client):
    execution = client.run("greet", {"name": "db-1"})
    assert (execution["state"], execution["output"]) == ("SUCCESS", {"greeting": "db-1"})


def test_an_execution_has_tasks_with_results(client):
    tasks = client.tasks(client.run("greet", {"name": "db-1"})["id"])
    assert [t["name"] for t in tasks] == ["say"]
    assert client.task(tasks[0]["id"])["result"] == "db-1"


def test_an_execution_of_the_same_id_is_not_started_twice(client):
    own = str(uuid.uuid4())
    first = client.run("greet", {"name": "first"}, id=own)
    again = client.start("greet", {"name": "second"}, id=own)
    assert first["id"] == again["id"] == own
    assert client.execution(own)["output"] == {"greeting": "first"}


def test_cancelling_ends_an_execution(client):
    execution = client.start("hang")
    client.set_state(execution["id"], "CANCELLED", "no longer wanted")
    assert client.wait(execution["id"])["state"] == "CANCELLED"


def test_the_executions_below_one_are_found(client):
    execution = client.start("parent")
    until(lambda: len(client.sub_executions(execution["id"])) == 2)
    found = client.sub_executions(execution["id"])
    assert {e["workflow_name"] for e in found} == {"parent", "hang"}
    client.set_state(execution["id"], "CANCELLED")


def test_each_row_of_a_list_counts_once_if_the_row_that_ended_a_page_is_deleted(
    client, monkeypatch
):
    """Mistral answers the next page with 404."""
    monkeypatch.setattr(client_module, "PAGE", 2)
    note = str(uuid.uuid4())
    ran = [client.run("greet", description=note)["id"] for _ in range(5)]
    rows = client.rows("executions", description=note)

    found = [next(rows)["id"] for _ in range(2)]
    client.request("DELETE", f"executions/{found[-1]}")
    found += [row["id"] for row in rows]

    assert sorted(found) == sorted(ran)


def test_waiting_ends_when_the_time_is_over(client):
    execution = client.start("hang")
    with pytest.raises(MistralError) as caught:
        client.wait(execution["id"], timeout=0.05)
    assert caught.value.code == "STILL_RUNNING"
    client.set_state(execution["id"], "CANCELLED")


@pytest.mark.parametrize("save_result", [True, False])
def test_an_action_runs_by_itself(client, save_result):
    given = {"output": {"a": [1]}}
    assert client.run_action("std.echo", given, save_result=save_result) == {"a": [1]}


def test_a_failing_action_says_why(client):
    with pytest.raises(MistralError) as caught:
        client.run_action("std.fail", {"error_data": "no quorum"})
    assert caught.value.code == "ACTION_FAILED"
    assert "no quorum" in caught.value.message


def test_uploading_registers_and_then_updates(client):
    text = "version: '2.0'\nup:\n  output: {v: 1}\n  tasks: {t: {action: std.noop}}\n"
    assert client.upload(text) == ["up"]
    assert client.upload(text.replace("v: 1", "v: 2")) == ["up"]
    assert client.run("up")["output"] == {"v": 2}
    assert "up" in [w["name"] for w in client.workflows()]


def test_errors_of_the_api_carry_its_reason(client):
    with pytest.raises(MistralError) as caught:
        client.upload("version: '2.0'\nbad:\n  tasks: {}\n")
    assert caught.value.code == "MISTRAL_REFUSED"
    assert "Invalid DSL" in caught.value.message
    with pytest.raises(MistralError) as caught:
        client.execution(str(uuid.uuid4()))
    assert caught.value.code == "NOT_FOUND"


def test_an_unreachable_mistral_is_an_error_of_its_own():
    with pytest.raises(MistralError) as caught:
        MistralClient("http://127.0.0.1:9/v2").workflows()
    assert caught.value.code == "MISTRAL_UNREACHABLE"


# --- closed doors ------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, {"X-Roles": "admin"}])
def test_code_cannot_be_sent_through_the_api(server, client, headers, tmp_path):
    headers = {"X-Auth-Token": server.token, **headers}
    trace = tmp_path / "ran"
    code = (
        "from mistral_lib import actions\n"
        f"open({str(trace)!r}, 'w').close()\n"
        "class Evil(actions.Action):\n"
        "    def run(self, context):\n"
        f"        open({str(trace)!r}, 'w').close()\n"
    )
    source = requests.post(
        f"{client.url}/code_sources?name=evil",
        data=code,
        headers={"Content-Type": "text/plain", **headers},
        timeout=10,
    )
    action = requests.post(
        f"{client.url}/dynamic_actions",
        headers=headers,
        timeout=10,
        json={"name": "evil", "class_name": "Evil", "code_source_name": "evil"},
    )
    assert (source.status_code, action.status_code) == (403, 403)
    with pytest.raises(MistralError):
        client.run_action("evil")
    assert "evil" not in client.actions()
    assert not trace.exists()


@pytest.mark.parametrize("name", ["std.javascript", "std.js", "std.ssh", "std.ssh_proxied"])
def test_actions_that_run_code_or_use_the_owners_keys_are_not_there(client, name):
    assert name not in client.actions()


def test_a_workflow_reaches_neither_this_machine_nor_the_metadata_service(
    client: MistralClient,
) -> None:
    names = ("localhost", "0.0.0.0", "[::ffff:127.0.0.1]")  # noqa: S104 - for a connection
    own = [client.url, *(client.url.replace("127.0.0.1", name) for name in names)]
    for asked in (
        *({"url": url} for url in (*own, METADATA)),
        {"url": "http://192.0.2.1/", "proxies": PROXY},
    ):
        with pytest.raises(MistralError) as refused:
            client.run_action("std.http", {"timeout": 5, **asked})
        assert "blocked" in refused.value.message or "not allowed" in refused.value.message


# --- beginning and end -------------------------------------------------------------------------


def test_a_state_directory_has_one_process(server):
    with pytest.raises(CodedError) as caught:
        MistralProcess(server.state_dir).start()
    assert caught.value.code == "DID_NOT_START"
    assert "STATE_DIR_IN_USE" in caught.value.message


def test_a_script_ends_by_itself_with_its_own_exit_code(tmp_path, files):
    script = """
import sys, warnings
from mistral_failover.errors import CodedError
from mistral_failover.embedded.server import EmbeddedMistral
with EmbeddedMistral(sys.argv[1], log_file=sys.argv[1] + "/mistral.log") as mistral:
    print(mistral.install_workflows(sys.argv[2:]), mistral.install_workflows(sys.argv[2:]))
    print(mistral.client.run("greet")["output"])
    try:
        EmbeddedMistral(sys.argv[1] + "/other").start()
    except CodedError as e:
        print(e.code)
with mistral:
    print(mistral.client.run("greet")["state"], len(mistral.client.executions()))
sys.exit(7)
"""
    done = run_script(script, tmp_path, *files)
    assert done.stdout.splitlines() == [
        "['greet', 'hang', 'parent'] []",
        "{'greeting': 'nobody'}",
        "ALREADY_RUNNING",
        "SUCCESS 2",
    ], done.stderr
    assert done.returncode == 7
    assert "Engine server started" in (tmp_path / "mistral.log").read_text()


def test_the_first_requests_are_answered_as_all_later_ones(tmp_path, files):
    # Mistral makes the rules of its API and the functions of its expressions at their first use,
    # and lets other threads use them while it does. Here that takes longer than a request.
    script = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from mistral_failover.embedded import boot
boot.init()
from mistral import expressions, policies
from mistral.expressions import base
from mistral_failover.embedded.server import EmbeddedMistral

def slow(function):
    def taking_its_time():
        time.sleep(1)
        return function()
    return taking_its_time

policies.list_rules = slow(policies.list_rules)
base.get_custom_functions = slow(base.get_custom_functions)

def first(number):
    time.sleep(number / 4)
    assert expressions.evaluate("<% uuid() %>", {})
    return mistral.client.run("greet")["output"]["greeting"]

with EmbeddedMistral(sys.argv[1]) as mistral, ThreadPoolExecutor() as pool:
    mistral.install_workflows(sys.argv[2:])
    print(list(pool.map(first, range(3))))
"""
    done = run_script(script, tmp_path, *files)
    assert done.stdout.splitlines() == ["['nobody', 'nobody', 'nobody']"], done.stderr


def test_a_script_that_fails_does_not_hang_on_mistral(tmp_path):
    script = """
import sys
from mistral_failover.embedded.server import EmbeddedMistral
EmbeddedMistral(sys.argv[1]).start().client.run_action("std.noop")
raise RuntimeError("by the way")
"""
    done = run_script(script, tmp_path)
    assert done.returncode == 1
    assert "by the way" in done.stderr


def test_the_program_ends_on_sigterm(tmp_path):
    process = MistralProcess(tmp_path).start()
    assert process.stop() == 0
    assert process.pid is None


# --- after a crash -----------------------------------------------------------------------------


def test_what_a_killed_process_left_running_can_be_found_and_ended(tmp_path, files):
    crashed = MistralProcess(tmp_path, workflows=files).start()
    execution = crashed.client.start("parent")
    until(lambda: len(crashed.client.sub_executions(execution["id"])) == 2)
    left = {e["id"] for e in crashed.client.sub_executions(execution["id"])}
    finished = crashed.client.run("greet")["id"]
    crashed.kill()

    script = """
import json, sys
from mistral_failover.errors import CodedError
from mistral_failover.embedded.server import EmbeddedMistral
with EmbeddedMistral(sys.argv[1]) as mistral:
    own = mistral.client.start("hang")["id"]
    try:
        mistral.cancel_stale("SUCCESS")
    except CodedError as e:
        code = e.code
    stale = mistral.stale_executions()
    ended = mistral.cancel_stale()
    ids = [s["id"] for s in stale] + [own, sys.argv[2]]
    print(json.dumps({
        "code": code, "stale": stale, "ended": ended, "after": mistral.stale_executions(),
        "states": {i: mistral.client.execution(i)["state"] for i in ids},
        "tasks": [t["state"] for s in stale for t in mistral.client.tasks(s["id"])],
        "own": own, "again": mistral.client.run("greet")["state"],
    }))
"""
    done = run_script(script, tmp_path, finished)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["code"] == "BAD_STATE"
    assert {s["id"] for s in report["stale"]} == left == set(report["ended"])
    assert {s["workflow_name"] for s in report["stale"]} == {"parent", "hang"}
    assert report["after"] == []
    assert report["states"] == {
        **dict.fromkeys(left, "CANCELLED"),
        report["own"]: "RUNNING",
        finished: "SUCCESS",
    }
    assert set(report["tasks"]) == {"CANCELLED"}
    assert report["again"] == "SUCCESS"
