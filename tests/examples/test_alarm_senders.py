# SPDX-License-Identifier: Apache-2.0
"""What the senders in examples/alarms would send, to a real failover server: the decision is the
right one, about the right member."""

from __future__ import annotations

import getpass
import grp
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from mistral_failover.server import secret
from support.alarm_bodies import ALERT, MASAKARI, WEBHOOK
from support.debian import program
from support.pages import ROOT
from support.servers import ServerProcess
from support.waiting import until
from testcloud.apis import free_port

FOLDER = ROOT / "examples" / "alarms"
MONITORING = ROOT / "examples" / "monitoring"
URL = "https://failover.example.org:8990/v1/alarms"

pytestmark = [pytest.mark.drills, pytest.mark.timeout(400)]


@contextmanager
def serving(folder: Path) -> Iterator[ServerProcess]:
    """A server before an emulated cloud, with a group that is in service."""
    with ServerProcess(folder, "--emulated") as running:
        made = running.failover("group", "create", str(folder / "payments.yaml"))
        assert made.returncode == 0, made.stdout + made.stderr
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose group is paused, so no alarm changes what the next one meets."""
    with serving(tmp_path_factory.mktemp("senders") / "state") as running:
        paused = running.failover("pause", "payments", "--because", "a test")
        assert paused.returncode == 0, paused.stderr
        yield running


def lost(server: ServerProcess) -> str:
    """The id of the active member's server."""
    shown = server.action("failover.status", group="payments")
    return str(next(row["server"] for row in shown["members"] if row["name"] == "db_a"))


def decided(answer: Any) -> dict[str, Any]:
    """The decision in an answer of the webhook."""
    assert answer.status_code == 202, answer.text
    (decision,) = answer.json()["decisions"]
    return dict(decision)


def held_for_db_a(server: ServerProcess, decision: dict[str, Any]) -> None:
    """Check that it is about db_a, and that only the pause holds it."""
    assert decision["decision"] == "HELD", decision
    rows = server.action("failover.held")["held"]
    (row,) = [each for each in rows if each["incident"] == decision["incident"]]
    assert (row["group"], row["lost"], row["rule"]) == ("payments", ["db_a"], "paused")


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((FOLDER / name).read_text("utf-8")))


# -- Aodh


def aodh(alarm: str, reason: dict[str, Any]) -> dict[str, Any]:
    """The body that Aodh's notifier posts."""
    return {
        "alarm_name": alarm,
        "alarm_id": f"id-of-{alarm}",
        "severity": "low",
        "previous": "ok",
        "current": "alarm",
        "reason": "Transition to alarm",
        "reason_data": reason,
    }


def action(alarm: str) -> str:
    """The query that the template adds to the address."""
    (template,) = documents("aodh.yaml")
    resource = template["resources"][alarm]
    (to,) = resource["properties"]["alarm_actions"]
    made = str(to["str_replace"]["template"])
    for name, value in (("GROUP", "payments"), ("MEMBER", "db_a"), ("WEBHOOK", "")):
        assert name in to["str_replace"]["params"]
        made = made.replace(name, value)
    return made


def test_an_event_alarm_of_aodh(server: ServerProcess) -> None:
    event = {
        "message_id": "m-1",
        "event_type": "compute.instance.update",
        "generated": "2026-11-21T08:00:00",
        "traits": [["instance_id", 1, lost(server)], ["state", 1, "error"]],
    }
    body = aodh("lost", {"type": "event", "event": event})

    held_for_db_a(server, decided(server.send(body, action("lost"))))


def test_a_threshold_of_gnocchi(server: ServerProcess) -> None:
    reason = {"type": "threshold", "disposition": "outside", "count": 2, "most_recent": 0.0}
    body = aodh("silent", reason)

    held_for_db_a(server, decided(server.send(body, action("silent"))))
    over = decided(server.send({**body, "previous": "alarm", "current": "ok"}, action("silent")))
    assert over["decision"] == "IGNORED"
    nothing = {**body, "current": "insufficient data", "reason_data": {"type": "threshold"}}
    assert decided(server.send(nothing, action("silent")))["decision"] == "IGNORED"


# -- Alertmanager

SERIES = {
    "ServerInError": {"id": "SERVER", "name": "db-a", "status": "ERROR"},
    "MemberDoesNotAnswer": {"job": "failover-members", "group": "payments", "member": "db_a"},
}
ADDED = {
    "prometheus": "monitoring/k8s",
    "namespace": "monitoring",
    "instance": "10.0.0.7:9180",
    "pod": "openstack-exporter-0",
    "container": "exporter",
    "service": "openstack-exporter",
    "endpoint": "metrics",
    "severity": "critical",
}
"""Labels that kube-prometheus adds."""


@pytest.mark.parametrize("name", SERIES)
def test_an_alert_of_kube_prometheus(server: ServerProcess, name: str) -> None:
    rules, config = documents("kube-prometheus.yaml")
    (group,) = rules["spec"]["groups"]
    rule = next(each for each in group["rules"] if each["alert"] == name)
    series = {**ADDED, **SERIES[name]}
    if "id" in series:
        series["id"] = lost(server)

    def filled(text: str) -> str:
        return re.sub(r"{{ \$labels\.(\w+) }}", lambda found: series[found[1]], text)

    labels = series | {"alertname": name} | {k: filled(v) for k, v in rule["labels"].items()}
    (matcher,) = config["spec"]["route"]["matchers"]
    assert labels[matcher["name"]] == matcher["value"], "it is routed to the server"
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    alert = {**ALERT, "labels": labels, "startsAt": now, "fingerprint": f"of-{name}"}

    held_for_db_a(server, decided(server.send({**WEBHOOK, "alerts": [alert]})))


def test_promtool_takes_the_rules_of_kube_prometheus(tmp_path: Path) -> None:
    rules, _ = documents("kube-prometheus.yaml")
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rules["spec"]), "utf-8")

    done = subprocess.run(
        [program("promtool"), "check", "rules", file], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 rules found" in done.stdout


@contextmanager
def alertmanager(server: ServerProcess, folder: Path) -> Iterator[str]:
    """A real Alertmanager with our file, but for the address and the token's file; gives its own
    address."""
    given = (MONITORING / "alertmanager.yaml").read_text("utf-8")
    token = folder / "token"
    token.write_text(secret.read(Path(server.facts["secret_file"])).token)
    changes = {URL: server.facts["webhook"], "/etc/alertmanager/failover-token": str(token)}
    for theirs, ours in changes.items():
        assert theirs in given
        given = given.replace(theirs, ours)
    config = folder / "alertmanager.yml"
    config.write_text(given, "utf-8")
    listen = f"127.0.0.1:{free_port()}"
    command = [program("prometheus-alertmanager"), f"--config.file={config}"]
    command += [f"--storage.path={folder / 'data'}", f"--web.listen-address={listen}"]
    running = subprocess.Popen(
        [*command, "--cluster.listen-address="],
        stdout=(folder / "log").open("wb"),
        stderr=subprocess.STDOUT,
    )
    try:
        yield f"http://{listen}"
    finally:
        running.terminate()
        running.wait(30)


def test_alertmanager_sends_the_alert_that_promises_a_lost_member_and_no_other(
    server: ServerProcess, tmp_path: Path
) -> None:
    def labels(name: str, **more: str) -> dict[str, Any]:
        return {"labels": {"alertname": name, "failover_group": "payments", **more}}

    with alertmanager(server, tmp_path) as address:
        until(lambda: _answers(f"{address}/-/ready"))
        known = len(held(server, "alertmanager"))
        alerts = [
            labels("DiskFull", host="cmp1"),
            labels("FailoverDown", failover="start", host="cmp1"),
            labels("DatabaseLost", failover="start", failover_member="db_a"),
        ]
        requests.post(f"{address}/api/v2/alerts", json=alerts, timeout=30).raise_for_status()

        until(lambda: len(held(server, "alertmanager")) > known)

        (row,) = held(server, "alertmanager")[: len(held(server, "alertmanager")) - known]
        assert (row["group"], row["lost"], row["rule"]) == ("payments", ["db_a"], "paused")


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).status_code == 200
    except requests.ConnectionError:
        return False


# -- Masakari


def monitored(server: ServerProcess) -> dict[str, Any]:
    """What an instance monitor posts."""
    body: dict[str, Any] = json.loads(json.dumps(MASAKARI))
    body["notification"]["payload"]["instance_uuid"] = lost(server)
    body["notification"]["generated_time"] = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    return body


def test_a_notification_of_masakari(server: ServerProcess) -> None:
    held_for_db_a(server, decided(server.send(monitored(server), "?kind=masakari")))


def test_nginx_sends_masakari_s_notifications_on(server: ServerProcess, tmp_path: Path) -> None:
    nginx = shutil.which("nginx")
    if nginx is None:
        pytest.skip("needs nginx")
    from testbroker.broker import free_ports

    listen, masakari = free_ports(2)
    token = secret.read(Path(server.facts["secret_file"])).token
    site = (FOLDER / "masakari-nginx.conf").read_text("utf-8")
    for given, ours in (
        (URL, server.facts["webhook"]),
        ("listen 15868", f"listen 127.0.0.1:{listen}"),
        ("masakari-api:15868", f"127.0.0.1:{masakari}"),
        ("Bearer TOKEN", f"Bearer {token}"),
    ):
        assert given in site
        site = site.replace(given, ours)
    paths = "".join(
        f"{each}_temp_path {tmp_path}/{each};"
        for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    api = f"server {{ listen 127.0.0.1:{masakari}; location / {{ return 202; }} }}"
    config = tmp_path / "nginx.conf"
    config.write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off; {paths}\n{site}\n{api} }}\n"
    )
    running = subprocess.Popen([nginx, "-c", config, "-p", tmp_path])
    try:
        command = ["curl", "-sS", "--retry", "20", "--retry-connrefused", "--retry-delay", "1"]
        command += ["-H", "Content-Type: application/json", "-w", "%{http_code}", "-d", "@-"]
        there = f"http://127.0.0.1:{listen}/v1/notifications"
        known = len(held(server, "masakari"))
        body = monitored(server)
        body["notification"]["notification_uuid"] = "n-of-nginx"
        done = subprocess.run(
            [*command, there], input=json.dumps(body), capture_output=True, text=True, check=True
        )
        assert done.stdout == "202"
        until(lambda: len(held(server, "masakari")) > known)
    finally:
        running.terminate()
        running.wait(30)


def held(server: ServerProcess, source: str) -> list[Any]:
    """The held alarms of a source."""
    rows = server.action("failover.held")["held"]
    return [row for row in rows if row["source"] == source]


# -- Zabbix and Icinga

HTTP_REQUEST = """
var sent = [];
function HttpRequest() { this.headers = []; }
HttpRequest.prototype.addHeader = function (line) { this.headers.push(line); };
HttpRequest.prototype.post = function (url, body) {
  sent.push({url: url, headers: this.headers, body: body}); return '{}';
};
HttpRequest.prototype.getStatus = function () { return STATUS; };
"""


def zabbix(status: int, **macros: str) -> dict[str, Any]:
    """What the script of the media type posts, for a problem with these macros."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node.js")
    (export,) = documents("zabbix.yaml")
    (media,) = export["zabbix_export"]["media_types"]
    given = {
        row["name"]: macros.get(row["value"].strip("{}"), row["value"])
        for row in media["parameters"]
    }
    script = (
        HTTP_REQUEST.replace("STATUS", str(status))
        + f"(function (value) {{ {media['script']} }})({json.dumps(json.dumps(given))});"
        + "console.log(JSON.stringify(sent[0]));"
    )
    done = subprocess.run([node, "-e", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sent: dict[str, Any] = json.loads(done.stdout)
    return sent


def test_a_problem_of_zabbix_and_its_end(server: ServerProcess) -> None:
    about = {"EVENT.ID": "77", "EVENT.NAME": "PostgreSQL is down"}
    about |= {"EVENT.TAGS.failover_group": "payments", "EVENT.TAGS.failover_member": "db_a"}

    problem = zabbix(202, **about, **{"EVENT.VALUE": "1"})
    end = zabbix(202, **about, **{"EVENT.VALUE": "0"})

    assert problem["url"] == URL
    assert "Authorization: Bearer TOKEN" in problem["headers"]
    held_for_db_a(server, decided(server.send(json.loads(problem["body"]))))
    assert decided(server.send(json.loads(end["body"])))["decision"] == "IGNORED"
    with pytest.raises(AssertionError, match="answered 503"):
        zabbix(503, **about, **{"EVENT.VALUE": "1"})


def test_zabbix_s_own_engine_runs_the_script(server: ServerProcess, tmp_path: Path) -> None:
    engine = program("zabbix_js")
    (export,) = documents("zabbix.yaml")
    (media,) = export["zabbix_export"]["media_types"]
    script = tmp_path / "script.js"
    script.write_text(media["script"], "utf-8")
    given = {"url": server.facts["webhook"], "event": "4711", "problem": "1"}
    given |= {"name": "PostgreSQL is down", "group": "payments", "member": "db_a"}
    token = secret.read(Path(server.facts["secret_file"])).token

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        command = [engine, "-s", script, "-p", json.dumps({**given, **more})]
        return subprocess.run(command, capture_output=True, text=True)

    refused = run(token="0" * 64)
    known = len(held(server, "signal"))
    taken = run(token=token)

    assert refused.returncode != 0
    assert "The failover server answered 401" in refused.stdout + refused.stderr
    assert (taken.returncode, taken.stdout.strip()) == (0, "OK"), taken.stderr
    assert len(held(server, "signal")) == known + 1


def posted(server: ServerProcess, *fields: str, body: str = "") -> dict[str, Any]:
    """Run failover-post; return the answer."""
    command = [FOLDER / "failover-post", server.facts["webhook"], server.facts["secret_file"]]
    done = subprocess.run([*command, *fields], input=body, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def test_a_problem_of_icinga(server: ServerProcess) -> None:
    text = (FOLDER / "icinga2.conf").read_text("utf-8")
    block = re.findall(r"command = \[\n(.*?)\n  \]", text, re.DOTALL)[0]
    words = json.loads(f"[{block}]")
    macros = {
        "service.vars.failover_group": "payments",
        "service.vars.failover_member": "db_a",
        "host.name": "db-a",
        "service.name": "postgresql",
        "service.last_hard_state_change": "1795248000",
        "service.output": "connection refused",
    }
    filled = [re.sub(r"\$([\w.]+)\$", lambda found: macros[found[1]], word) for word in words]

    assert filled[:2] == ["/usr/local/bin/failover-post", URL]
    (decision,) = posted(server, *filled[3:])["decisions"]
    held_for_db_a(server, decision)
    posted(server, *filled[3:])  # also within the second, when the signature is the same


def test_icinga_takes_the_file_and_notifies_for_the_services_that_name_a_group(
    tmp_path: Path,
) -> None:
    """Icinga checks the objects that a file makes, and applies its rules to them."""
    site = tmp_path / "icinga2.conf"
    site.write_text(
        f"""
        include <itl>
        object Host "db-a" {{ check_command = "dummy" }}
        object Service "postgresql" {{
          host_name = "db-a"
          check_command = "dummy"
          vars.failover_group = "payments"
          vars.failover_member = "db_a"
        }}
        object Service "disk" {{
          host_name = "db-a"
          check_command = "dummy"
        }}
        include "{FOLDER / "icinga2.conf"}"
        """,
        "utf-8",
    )
    paths = {"DataDir": "data", "LogDir": "log", "CacheDir": "cache", "InitRunDir": "run"}
    command = [program("icinga2"), "daemon", "-C", "-c", site]
    for name, folder in paths.items():
        (tmp_path / folder).mkdir()
        command += ["-D", f"{name}={tmp_path / folder}"]

    # It would drop its rights to those of its own user, who may not enter the test's folder.
    mine = {"ICINGA2_USER": getpass.getuser(), "ICINGA2_GROUP": grp.getgrgid(os.getgid()).gr_name}

    done = subprocess.run(command, env=os.environ | mine, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Instantiated 1 Notification." in done.stdout
    assert "Instantiated 1 NotificationCommand." in done.stdout


# -- a script


def test_a_signed_post_that_is_refused_is_an_error(server: ServerProcess, tmp_path: Path) -> None:
    other = tmp_path / "secret"
    other.write_text("x" * 40)
    command = [FOLDER / "failover-post", server.facts["webhook"], other, "group=payments"]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 1
    assert "UNAUTHORISED" in done.stdout


def test_a_signed_post_starts_the_failover(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        broken = server.failover("emulator", "break", "payments", "db_a", "--no-alarm")
        assert broken.returncode == 0, broken.stderr

        body = {"group": "payments", "member": "db_a", "id": "watchdog-4711"}
        (decision,) = posted(server, body=json.dumps(body))["decisions"]

        assert decision["decision"] == "ADMITTED", decision

        def moved() -> bool:
            shown = server.action("failover.status", group="payments")
            return bool(shown["roles"] == {"active": "db_b"} and shown["status"] == "COMPLETE")

        until(moved)
