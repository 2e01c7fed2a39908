# SPDX-License-Identifier: Apache-2.0
"""A real Mistral tells users' own workflows of events, and its numbers are served to Prometheus."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from mistral_failover.lab.drill import examples
from mistral_failover.mistral.event_hooks import event_id
from support.deployments import create_example, deployed
from support.mistral_process import MistralProcess
from support.scripted_http import ScriptedServer, scripted_server
from support.waiting import until

pytestmark = pytest.mark.drills

EXAMPLE = Path(__file__).parents[2] / "examples" / "tell_webhook.yaml"
HOUSE = """
version: '2.0'
house.late:
  input: [event]
  output:
    heard: <% $.event.event %>
  tasks:
    only:
      action: std.noop
"""


def told_of(webhook: ScriptedServer, group: str) -> dict[str, dict[str, Any]]:
    """By event, what the example's workflow said of a group."""
    mine = [asked.body for asked in webhook.seen if isinstance(asked.body["event"], dict)]
    return {b["event"]["event"]: b for b in mine if b["event"]["group"] == group}


@pytest.fixture(scope="module")
def webhook() -> Iterator[ScriptedServer]:
    """A webhook of somebody's on this machine."""
    with scripted_server() as listening:
        yield listening


@pytest.fixture(scope="module")
def mistral(
    tmp_path_factory: pytest.TempPathFactory, webhook: ScriptedServer
) -> Iterator[MistralProcess]:
    with deployed(tmp_path_factory.mktemp("scene"), storm_groups="0") as (mistral, cloud):
        text = EXAMPLE.read_text("utf-8").replace(
            "https://chat.example.org/hooks/failover", webhook.url
        )
        mistral.client.upload(text)
        hooks = {
            "told": {"workflow": "house.tell_webhook", "events": ["started", "complete"]},
            "late": {"workflow": "house.late"},
        }
        for group, hook in hooks.items():
            create_example(cloud, group)
            definition = {**examples.group(1, group), "on_event": hook}
            mistral.client.run_action("failover.define", {"definition": definition, "name": group})
            ended = mistral.client.run("failover.activate_first", {"group": group})
            assert ended["state"] == "SUCCESS", ended
        yield mistral


def history(mistral: MistralProcess, group: str, kind: str) -> list[dict[str, Any]]:
    rows = mistral.client.run_action("failover.history", {"group": group, "limit": 1000})
    return [row for row in rows if row["kind"] == kind]


def identity(mistral: MistralProcess, group: str) -> str:
    return str(
        mistral.client.run_action(
            "failover.status",
            {"group": group},
        )["traversal"]["group_id"]
    )


def test_a_webhook_is_told_of_the_events_that_were_asked_for(
    mistral: MistralProcess, webhook: ScriptedServer
) -> None:
    until(lambda: len(told_of(webhook, "told")) >= 2, "told of both")

    by_event = told_of(webhook, "told")

    assert set(by_event) == {"started", "complete"}
    (row,) = history(mistral, "told", "complete")
    event = by_event["complete"]["event"]
    assert by_event["complete"]["text"] == f"told is complete: {row['sentence']}"
    assert {**event, "incident": None} == {
        "id": row["id"],
        "group": "told",
        "event": "complete",
        "sentence": "Done: db_a is active",
        "incident": None,
        "traversal": row["traversal_id"],
        "roles": {"active": "db_a"},
        "lost": [],
        "at": row["at"],
    }
    assert event["incident"]
    told = event_id(identity(mistral, "told"), row["id"], row["at"])
    execution = mistral.client.execution(told)
    assert execution["workflow_name"] == "house.tell_webhook"


def test_what_could_not_be_told_is_told_by_a_sweep_once_the_workflow_is_there(
    mistral: MistralProcess,
) -> None:
    (noted,) = until(lambda: history(mistral, "late", "untold"), "noted that it can not tell")
    assert noted["sentence"].startswith("house.late could not be notified of started: ")
    assert "Workflow not found" in noted["sentence"]
    unable = mistral.client.run("failover.sweep", {"group": "late"})["output"]["swept"]["unable"]
    assert unable == [noted["sentence"]]
    mistral.client.upload(HOUSE)

    swept = mistral.client.run("failover.sweep", {"group": "late"})["output"]["swept"]

    # The thread that told in vain after the last commit may be late itself, and be the first.
    assert {row["event"] for row in swept["told"]} <= {"started", "complete"}
    assert swept["unable"] == []
    assert len(history(mistral, "late", "untold")) == 1
    events = [*history(mistral, "late", "traversal"), *history(mistral, "late", "complete")]
    assert len(events) == 2
    for row in events:
        told = event_id(identity(mistral, "late"), row["id"], row["at"])
        execution = mistral.client.wait(told)
        assert execution["state"] == "SUCCESS", execution
    again = mistral.client.run("failover.sweep", {"group": "late"})["output"]["swept"]
    assert again["told"] == []


def test_mistral_itself_tells_of_the_states_of_an_execution(
    mistral: MistralProcess, webhook: ScriptedServer
) -> None:
    notify = [{"type": "webhook", "url": webhook.url, "headers": {}}]
    started = mistral.client.start("failover.sweep", {}, params={"notify": notify})
    mistral.client.wait(started["id"])

    def states() -> set[str]:
        return {
            asked.body["event"] for asked in webhook.seen if asked.body.get("id") == started["id"]
        }

    until(lambda: {"WORKFLOW_LAUNCHED", "WORKFLOW_SUCCEEDED"} <= states(), "notified")


class Running:
    """``failover exporter``, as a user runs it."""

    def __init__(self, url: str, *options: str, token_file: Path | None = None) -> None:
        command = [sys.executable, "-m", "mistral_failover.cli.main", "exporter"]
        self.process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", "--interval", "0.5", *options],
            env={
                **os.environ,
                "FAILOVER_MISTRAL_URL": url,
                "FAILOVER_MISTRAL_TOKEN_FILE": str(token_file or ""),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("The metrics are at "), self.process.communicate(timeout=30)
        self.url = line.split()[-1]

    def samples(self) -> dict[tuple[str, ...], float]:
        """Each sample by its name and the values of its labels, in the order of their names."""
        text = requests.get(self.url, timeout=30).text
        return {
            (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def end(self) -> tuple[int, str]:
        """Its exit code and what it said to stderr."""
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=60)[1]
        return self.process.returncode, said


def silence_in(samples: dict[tuple[str, ...], float]) -> dict[str, float]:
    """How long the agents have been silent, by member."""
    return {key[2]: value for key, value in samples.items() if "agent_silence" in key[0]}


def test_the_exporter_serves_what_mistral_answers(mistral: MistralProcess) -> None:
    exporter = Running(mistral.url, "--group-limit", "1", token_file=mistral.token_file)
    try:
        # Agents that do not answer within some seconds are left out, until the next time.
        until(lambda: len(silence_in(exporter.samples())) == 2, "asked, the agents as well")
        found = exporter.samples()
    finally:
        assert exporter.end() == (0, "")

    project = "<default-project>"
    assert found["failover_traversals_total", "COMPLETE"] == 2
    assert found["failover_group_status", "told", project, "COMPLETE"] == 1
    assert found["failover_group_status", "other", project, "COMPLETE"] == 1
    assert found["failover_operations_total", "done", "volume_attachment", "create"] == 2
    assert found["failover_traversal_seconds_bucket", "+Inf", "COMPLETE"] == 2
    assert found["failover_traversal_seconds_count", "COMPLETE"] == 2
    assert 0 < found["failover_traversal_seconds_sum", "COMPLETE"] < 600
    silence = silence_in(found)
    assert set(silence) <= {"db_a", "db_b"}
    assert all(0 <= seconds < math.inf for seconds in silence.values())


def test_the_exporter_survives_that_mistral_is_away() -> None:
    exporter = Running("http://127.0.0.1:9/v2")
    try:
        failures = ("failover_scrape_failures_total",)
        until(lambda: exporter.samples()[failures] >= 2, "asked twice")
        found = exporter.samples()
    finally:
        code, said = exporter.end()

    assert found["failover_up",] == 0
    assert found["failover_scrape_age_seconds",] == math.inf
    assert code == 0
    assert said.count("MISTRAL_UNREACHABLE") == 1, "said once"
