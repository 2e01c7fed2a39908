# SPDX-License-Identifier: Apache-2.0
"""The alert rules and the dashboard ask for nothing but what is measured."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

from mistral_failover.metrics.families import FAMILIES, OWN, Family

FOLDER = Path(__file__).parents[2] / "examples" / "monitoring"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
SAMPLES = {name for family in (*FAMILIES.values(), *OWN) for name in family.names}


def named(expression: str) -> set[str]:
    """The metrics that an expression names."""
    return set(re.findall(r"failover_[a-z_]+", expression))


def family_of(sample: str) -> Family:
    return next(f for f in (*FAMILIES.values(), *OWN) if sample in f.names)


@pytest.mark.parametrize("expression", [*(rule["expr"] for rule in RULES), *QUERIES])
def test_every_metric_and_label_of_an_expression_is_there(expression: str) -> None:
    assert named(expression)
    assert named(expression) <= SAMPLES
    for sample, selectors in re.findall(r"(failover_[a-z_]+)\{([^}]*)\}", expression):
        labels = {*family_of(sample).labels, "le"}
        assert set(re.findall(r"(\w+)\s*[=!]", selectors)) <= labels


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_every_alert_says_what_helps_and_names_labels_that_it_has(rule: dict[str, Any]) -> None:
    said = rule["annotations"]
    assert set(said) == {"summary", "runbook", "command"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    known = {label for sample in named(rule["expr"]) for label in family_of(sample).labels}
    assert set(re.findall(r"\$labels\.(\w+)", " ".join(said.values()))) <= known


def test_every_command_of_an_alert_exists() -> None:
    commands = {point.name.replace("_", " ") for point in entry_points(group="failover.cli")}

    for rule in RULES:
        first, *words = rule["annotations"]["command"].split()
        assert first == "failover"
        assert words[0] in commands or " ".join(words[:2]) in commands, words


def test_what_must_not_go_unnoticed_has_an_alert() -> None:
    assert {rule["alert"].removeprefix("Failover") for rule in RULES} >= {
        "AgentSilent",
        "AlarmsHeld",
        "Blocked",
        "ExporterDown",
        "Failed",
        "Flapping",
        "Storm",
        "SweepNotRunning",
    }


def test_every_metric_is_on_the_dashboard_or_in_an_alert() -> None:
    shown = set().union(*(named(e) for e in [*QUERIES, *(rule["expr"] for rule in RULES)]))

    for family in (*FAMILIES.values(), *OWN):
        assert shown & set(family.names), family.name


def test_the_dashboard_s_panels_take_the_chosen_source_and_do_not_overlap() -> None:
    places = set()
    for panel in DASHBOARD["panels"]:
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert {source["uid"] for source in sources} == {"${datasource}"}
        at = panel["gridPos"]
        places |= {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24
    sizes = [panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in DASHBOARD["panels"]]
    assert len(places) == sum(sizes)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"]) >= 12
    assert [v["name"] for v in DASHBOARD["templating"]["list"]] == ["datasource", "group"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_the_rules_and_every_query(tmp_path: Path) -> None:
    variables = {"$group": ".*", "$__rate_interval": "5m"}
    records = []
    for number, query in enumerate(QUERIES):
        for name, value in variables.items():
            query = query.replace(name, value)
        records.append({"record": f"panel:{number}", "expr": query})
    panels = tmp_path / "panels.yaml"
    panels.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": records}]}))

    for file in (FOLDER / "alerts.yaml", panels):
        command = ["promtool", "check", "rules", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


# -- alertmanager.yaml

ALERTMANAGER = FOLDER / "alertmanager.yaml"
_MATCHES = {
    "=": lambda value, wanted: value == wanted,
    "!=": lambda value, wanted: value != wanted,
    "=~": lambda value, wanted: re.fullmatch(wanted, value) is not None,
    "!~": lambda value, wanted: re.fullmatch(wanted, value) is None,
}


def receivers(labels: dict[str, str]) -> list[str]:
    """To whom Alertmanager sends an alert with these labels."""
    route = yaml.safe_load(ALERTMANAGER.read_text("utf-8"))["route"]
    found: list[str] = []
    for each in route["routes"]:
        matchers = [
            re.fullmatch(r'(\w+)(=~|!~|!=|=)"(.*)"', text) for text in each.get("matchers", [])
        ]
        assert all(matchers), each
        if all(_MATCHES[m[2]](labels.get(m[1], ""), m[3]) for m in matchers if m):
            found.append(each["receiver"])
            if not each.get("continue"):
                return found
    return found or [route["receiver"]]


LOST = {"alertname": "DatabaseLost", "failover": "start", "failover_group": "payments"}


def test_an_alert_that_promises_a_lost_member_reaches_the_server_and_people() -> None:
    assert receivers(LOST) == ["failover", "people"]


def test_any_other_alert_reaches_people_only() -> None:
    assert receivers({"alertname": "DiskFull", "host": "cmp1"}) == ["people"]


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_our_own_alerts_never_come_back_as_alarms(rule: dict[str, Any]) -> None:
    added = {"host": "cmp1", "instance_id": "4711", "failover": "start"}  # by Prometheus

    assert receivers({"alertname": rule["alert"], **rule["labels"], **added}) == ["people"]


@pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is not installed")
def test_alertmanager_takes_the_file_and_sends_as_these_tests_say() -> None:
    amtool = ["amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER}"]
    for labels in (LOST, {"alertname": "FailoverDown", "failover": "start"}):
        pairs = [f"{name}={value}" for name, value in labels.items()]
        done = subprocess.run([*amtool, *pairs], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.strip().split(",") == receivers(labels)
