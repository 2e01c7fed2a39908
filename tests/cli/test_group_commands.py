# SPDX-License-Identifier: Apache-2.0
"""``failover group ...``, against a real Mistral."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.operators import Operator

BROKEN = """\
failover_template_version: 2026-11-21
stack: payments
members: {servers: [db_a, db_b], chose: oldest}
fence: [quiesce, stopp]
resources:
  data:
    type: volume_attachment
    propertis: {volume: data_volume, server: {get_param: active}}
  database:
    type: activation
    depends_on: data
    properties: {member: {get_param: active}, start: pg-start}
"""


@pytest.fixture(scope="session")
def shop(deployment: Any) -> str:
    """A group that was created by the command."""
    file = deployment.file("shop")
    told = deployment.shown("group", "create", str(file), "--because", "it opens")
    assert (told["group"], told["status"], told["roles"]) == (
        "shop",
        "COMPLETE",
        {"active": "db_a"},
    )
    return "shop"


def test_a_group_is_created_brought_up_and_each_step_is_told(deployment: Any) -> None:
    file = deployment.file("kiosk")

    done = deployment.failover("group", "create", str(file))

    assert done.returncode == 0, done.stderr
    assert "active: db_a" in done.stdout
    assert "Start database on db_a: done" in done.stderr
    assert "Done: " in done.stderr
    again = deployment.failover("group", "create", str(file))
    assert again.returncode == 1
    assert "[GROUP_EXISTS]" in again.stderr


def test_a_group_that_has_its_stack_keeps_it(deployment: Any, shop: str) -> None:
    table = deployment.failover("group", "adopt-stack", shop, "--no-activate")
    shown = deployment.shown("group", "adopt-stack", shop, "--no-activate")

    assert "shop has stack shop" in table.stderr
    assert "the same" in table.stdout
    assert (shown["former"], shown["kept"]) == (None, [])


@pytest.fixture
def misspelt(deployment: Any, request: pytest.FixtureRequest) -> Path:
    """The file of a group with three mistakes: a volume, a command, a parameter of the stack."""
    file: Path = deployment.file(f"misspelt-{request.node.name[5:30].strip('_')}".replace("_", "-"))
    text = file.read_text(encoding="utf-8")
    text = text.replace("volume: data_volume", "volume: data_volum")
    text = text.replace("stop: pg-stop", "stop: pg-stpo").replace(
        "        active:", "        activ_db:"
    )
    file.write_text(text, encoding="utf-8")
    return file


def line_of(file: Path, text: str) -> int:
    lines = file.read_text(encoding="utf-8").splitlines()
    return next(n for n, line in enumerate(lines, start=1) if text in line)


def test_each_mistake_of_a_file_is_told_with_its_line_and_no_group_is_made(
    deployment: Any, misspelt: Path
) -> None:
    done = deployment.failover("group", "create", str(misspelt))

    assert done.returncode == 1
    for text in ("data_volum", "pg-stpo", "activ_db"):
        assert f"{misspelt}:{line_of(misspelt, text)}: resources." in done.stderr
    assert "Nothing was changed" in done.stderr
    assert deployment.failover("status", misspelt.stem).returncode == 1


def test_mistakes_of_the_grammar_and_of_names_are_told_at_once(
    deployment: Any, misspelt: Path
) -> None:
    """What cannot be seen because of another mistake is not told twice."""
    text = misspelt.read_text(encoding="utf-8")
    text = text.replace("depends_on: data\n", "dependson: data\n")
    misspelt.write_text(text + "heel: report\n", encoding="utf-8")

    done = deployment.failover("group", "create", str(misspelt), "--dry-run", "-f", "json")

    found = json.loads(done.stdout)["problems"]
    assert {(each["line"], each["code"]) for each in found} >= {
        (line_of(misspelt, "heel"), "INVALID_DOCUMENT"),
        (line_of(misspelt, "dependson"), "INVALID_DOCUMENT"),
        (line_of(misspelt, "data_volum"), "NOT_FOUND"),
        (line_of(misspelt, "pg-stpo"), "UNKNOWN_COMMAND"),
        (line_of(misspelt, "activ_db"), "UNKNOWN_PARAMETER"),
    }
    assert len({(each["field"], each["message"]) for each in found}) == len(found)


def test_a_program_gets_each_mistake_with_its_place_code_and_remedy(
    deployment: Any, misspelt: Path
) -> None:
    done = deployment.failover("group", "create", str(misspelt), "--dry-run", "-f", "json")

    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["code"] == "INVALID_DOCUMENT"
    assert {(each["line"], each["code"]) for each in found["problems"]} == {
        (line_of(misspelt, "data_volum"), "NOT_FOUND"),
        (line_of(misspelt, "pg-stpo"), "UNKNOWN_COMMAND"),
        (line_of(misspelt, "activ_db"), "UNKNOWN_PARAMETER"),
    }
    assert {each["file"] for each in found["problems"]} == {str(misspelt)}
    assert all(each["field"] and each["message"] and each["remedy"] for each in found["problems"])


def test_a_new_group_ends_with_what_it_lacks_and_what_helps(deployment: Any) -> None:
    file = deployment.file("unnoticed")

    done = deployment.failover("group", "create", str(file))
    deployment.shown("group", "delete", "unnoticed", "--yes")
    told = deployment.shown("group", "create", str(file))

    assert "no alarm that leads to it is known" in done.stdout
    assert "> Create an alarm for the server of each member" in done.stdout
    assert "noticed" in {each["check"] for each in told["missing"]}
    assert all(each["sentence"] and each["remedy"] for each in told["missing"])


def test_a_dry_run_of_a_new_group_checks_it_and_makes_none(deployment: Any) -> None:
    file = deployment.file("checked")

    found = deployment.shown("group", "create", str(file), "--dry-run")

    assert (found["group"], "status" in found) == ("checked", False)
    words = [step["what"] for step in found["steps"]]
    assert "Start database on db_a" in [each.split(" (")[0] for each in words], words
    assert not any(step["interrupts"] for step in found["steps"])
    assert deployment.failover("status", "checked").returncode == 1


def test_a_group_may_be_defined_only_and_brought_up_or_forgotten_later(deployment: Any) -> None:
    file = deployment.file("stall")

    told = deployment.shown("group", "create", str(file), "--name", "booth", "--no-activate")

    assert (told["group"], told["stack"], "execution" in told) == ("booth", "stall", False)
    assert deployment.status("booth")["status"] == "DEFINED"
    gone = deployment.shown("group", "delete", "booth", "--yes")
    assert gone == {"group": "booth", "deleted": "booth was deleted", "dismissed": []}
    assert deployment.failover("group", "activate", "booth").returncode == 1
    deployment.shown("group", "create", str(file), "--name", "booth", "--no-activate")
    assert deployment.shown("group", "activate", "booth", "--to", "db_b")["roles"] == {
        "active": "db_b"
    }


def test_a_group_whose_chain_mistral_does_not_have_is_told_so_at_once(deployment: Any) -> None:
    file = deployment.file("chained")
    text = file.read_text(encoding="utf-8")
    file.write_text(f"{text}\nworkflow: house.nowhere\n", encoding="utf-8")

    done = deployment.failover("group", "create", str(file))

    assert done.returncode == 4, done.stdout + done.stderr
    assert "Mistral has no workflow house.nowhere, which the group file names" in done.stderr
    assert "waits for its chain house.nowhere" in done.stdout


def test_a_changed_file_is_converged_to_and_what_changes_is_said(
    deployment: Any, shop: str
) -> None:
    file = deployment.folder / "shop.yaml"
    document = yaml.safe_load(file.read_text())
    changed = deployment.folder / "shop-changed.yaml"
    changed.write_text(yaml.safe_dump({**document, "limits": {"cooldown": 7, "per_hour": 3}}))
    before = deployment.status(shop)

    dry = deployment.failover("group", "update", str(changed), "--dry-run")
    told = deployment.failover("group", "update", str(changed), "-f", "json")

    assert dry.returncode == told.returncode == 0, told.stderr
    assert "~ limits.cooldown: 60 -> 7" in dry.stdout
    assert "traversal" not in dry.stdout
    found = json.loads(told.stdout)
    assert found["changes"] == [{"path": "limits.cooldown", "before": 60, "after": 7}]
    assert found["status"] == "COMPLETE"
    after = deployment.status(shop)
    assert after["roles"] == before["roles"]
    assert after["traversal"]["id"] != before["traversal"]["id"]
    unknown = deployment.failover("group", "update", str(changed), "--name", "unknown")
    assert unknown.returncode == 1
    assert "[UNKNOWN_GROUP]" in unknown.stderr


def test_an_update_that_interrupts_the_service_asks_first(deployment: Any) -> None:
    file = deployment.file("hasty")
    deployment.shown("group", "create", str(file))
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    document["resources"]["database"]["properties"]["more"] = "x"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    words = ("group", "update", str(file))

    dry = deployment.failover(*words, "--dry-run")
    steps = deployment.shown(*words, "--dry-run")["steps"]
    unsure = deployment.failover(*words)
    no = deployment.failover(*words, typed="n\n")
    defined = deployment.shown("group", "show", "hasty")["in_force"]
    yes = deployment.failover(*words, typed="y\n")

    assert re.search(r"Restart database on db_a .*\(interrupts the service\)", dry.stdout)
    assert [(step["what"], step["interrupts"]) for step in steps] == [
        ("Restart database on db_a", True)
    ]
    assert (unsure.returncode, no.returncode) == (1, 1)
    assert "give --yes" in unsure.stderr
    assert "The update interrupts hasty (Restart database on db_a)" in no.stderr
    assert defined == {"differs": False, "lines": []}, "nothing was stored"
    assert yes.returncode == 0, yes.stderr
    assert "Restart database on db_a: done" in yes.stderr
    document["resources"]["database"]["properties"]["more"] = "y"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert deployment.failover(*words, "--yes").returncode == 0


def test_a_file_that_changes_nothing_is_recorded_as_that_and_converged_to(
    deployment: Any, shop: str
) -> None:
    file = deployment.folder / "shop-as-it-is.yaml"
    definition = deployment.shown("group", "show", shop)["definition"]
    file.write_text(yaml.safe_dump(definition))

    told = deployment.failover("group", "update", str(file), "--name", shop)

    assert told.returncode == 0, told.stderr
    assert re.search(r"changes +\| none ", told.stdout)
    traversal = deployment.status(shop)["traversal"]
    assert (traversal["status"], traversal["cause"]) == (
        "COMPLETE",
        "its definition was given again, unchanged",
    )
    assert "was changed" not in told.stderr


def test_a_broken_file_is_refused_with_every_problem_before_a_server_is_asked(
    deployment: Any, tmp_path: Path
) -> None:
    file = tmp_path / "group.yaml"
    file.write_text(BROKEN)

    done = deployment.failover("group", "create", str(file), url="http://127.0.0.1:1/v2")

    assert done.returncode == 1
    assert "members.chose" in done.stderr
    assert "resources.data.propertis" in done.stderr
    assert "[INVALID_DOCUMENT]" in done.stderr


def test_validate_lists_every_problem_with_its_field_and_remedy_without_a_server(
    deployment: Any, tmp_path: Path
) -> None:
    file, fine = tmp_path / "group.yaml", tmp_path / "fine.yaml"
    file.write_text(BROKEN)
    nowhere = "http://127.0.0.1:1/v2"

    done = deployment.failover("group", "validate", str(file), "-f", "json", url=nowhere)

    assert done.returncode == 1
    rows = {row["field"]: row for row in json.loads(done.stdout)}
    assert set(rows) == {
        "members.chose",
        "fence[1]",
        "resources.data.propertis",
        "resources.database.properties",
    }
    assert 'Did you mean "stop"?' in rows["fence[1]"]["remedy"]
    fine.write_text((deployment.folder / "clouds.yaml").read_text())
    assert deployment.failover("group", "validate", str(fine), url=nowhere).returncode == 1
    missing = deployment.failover("group", "validate", str(tmp_path / "none"), url=nowhere)
    assert (missing.returncode, "[NO_FILE]" in missing.stderr) == (1, True)


def test_a_file_that_is_well_is_said_to_be(deployment: Any, shop: str) -> None:
    done = deployment.failover("group", "validate", str(deployment.folder / "shop.yaml"))

    assert done.returncode == 0
    assert "no problems found" in done.stderr


def test_a_mistyped_stack_leaves_no_group_behind(deployment: Any, shop: str) -> None:
    file = deployment.folder / "mistyped.yaml"
    text = (deployment.folder / "shop.yaml").read_text("utf-8")
    file.write_text(text.replace(f"stack: {shop}", f"stack: {shop}x"), "utf-8")

    for words in (("--dry-run",), ()):
        done = deployment.failover("group", "create", str(file), *words)
        assert done.returncode == 1, done.stdout + done.stderr
        assert re.search(rf'mistyped\.yaml:\d+: stack: .*Did you mean "{shop}"', done.stderr)
    assert deployment.failover("status", f"{shop}x").returncode == 1


def test_the_list_has_a_row_for_each_group(deployment: Any, shop: str) -> None:
    rows = {row["name"]: row for row in deployment.shown("group", "list")}
    people = deployment.failover("group", "list").stdout

    assert rows[shop]["status"] == "COMPLETE"
    assert rows[shop]["service"] in ("SERVING", "DEGRADED")
    assert f"| {rows[shop]['service']} " in people
    assert rows[shop]["roles"] == {"active": "db_a"}
    assert rows[deployment.group]["roles"] == {"active": "db_b"}
    assert "active on db_a" in people
    assert people.count(f" {shop} ") == 1


def test_a_group_is_shown_with_its_file_for_people_and_for_machines(
    deployment: Any, shop: str
) -> None:
    whole = deployment.shown("group", "show", shop)
    alone = deployment.failover("group", "show", shop, "-f", "value", "-c", "definition")

    assert whole["definition"]["stack"] == shop
    assert whole["service"] in ("SERVING", "DEGRADED")
    assert yaml.safe_load(alone.stdout) == whole["definition"]
    assert [member["name"] for member in whole["members"]] == ["db_a", "db_b"]


def test_a_group_is_deleted_when_somebody_is_sure_and_its_alarms_end_with_it(
    deployment: Any,
) -> None:
    deployment.protect("closing")
    deployment.mistral.client.run_action(
        "failover.pause", {"group": "closing", "because": "it closes"}
    )
    body = {"group": "closing", "member": "db_a", "id": "w-closing"}
    deployment.mistral.client.run("failover.on_event", {"body": body})

    unsure = deployment.failover("group", "delete", "closing", typed="n\n")
    unanswered = deployment.failover("group", "delete", "closing")
    sure = deployment.failover("group", "delete", "closing", "-f", "json", typed="y\n")

    assert unsure.returncode == unanswered.returncode == 1
    assert "it dismisses what is held for it: 1 alarm" in unsure.stderr
    assert "--yes" in unanswered.stderr
    assert sure.returncode == 0, sure.stderr
    told = json.loads(sure.stdout)
    assert told["deleted"].startswith("closing was deleted")
    (ended,) = told["dismissed"]
    rows = deployment.shown("alarms")
    assert [row for row in rows if row["incident"] == ended["incident"]] == []
    assert deployment.failover("status", "closing").returncode == 1


def test_what_can_not_be_taken_out_of_service_is_not_forgotten(deployment: Any) -> None:
    deployment.protect("stuck", fence=["confirm"])
    words = ("group", "delete", "stuck", "--yes", "--lost", "db_a")

    done = deployment.failover(*words)

    assert done.returncode == 3, done.stdout
    assert deployment.status("stuck")["status"] == "BLOCKED"
    assert "stuck is still defined" in done.stdout
    assert "failover group delete stuck" in done.stdout


def test_a_resource_that_exists_is_not_forgotten(deployment: Any, shop: str) -> None:
    refused = deployment.failover("forget", shop, "data", "--because", "a test")

    assert refused.returncode == 1
    assert "[STILL_THERE]" in refused.stderr


def test_a_resource_of_which_nothing_is_left_may_be_forgotten_again(deployment: Any) -> None:
    file = deployment.file("ruin")
    deployment.shown("group", "create", str(file), "--no-activate")

    told = deployment.shown("forget", "ruin", "data", "--because", "it was never made")
    people = deployment.failover("forget", "ruin", "data", "--because", "it was never made")

    assert (told["forgotten"], told["next"]) == ([], "failover start ruin")
    assert people.returncode == 0
    assert "nothing is left of data" in people.stdout


@pytest.mark.parametrize("way", ["update", "delete"])
def test_a_group_whose_volume_was_deleted_before_it_was_brought_up_can_be_corrected_and_deleted(
    deployment: Any, way: str
) -> None:
    group, operator = f"emptied-{way}", Operator(deployment.cloud)
    right, volume = deployment.file(group), operator.make_volume()
    text = right.read_text(encoding="utf-8")
    wrong = right.with_name(f"wrong-{group}.yaml")
    wrong.write_text(text.replace("volume: data_volume", f"volume: {volume}"), encoding="utf-8")
    deployment.shown("group", "create", str(wrong), "--name", group, "--no-activate")
    operator.delete_volume(volume)
    assert deployment.failover("group", "activate", group).returncode == 1

    if way == "update":
        done = deployment.failover("group", "update", str(right), "--name", group)
        assert done.returncode == 0, done.stderr
        assert deployment.status(group)["service"]["status"] == "SERVING"
    done = deployment.failover("group", "delete", group, "--yes")

    assert done.returncode == 0, done.stderr


def test_a_group_is_released_and_what_it_protected_runs_on(deployment: Any) -> None:
    for group in ("freed", "freed-too"):
        deployment.protect(group)
    before = deployment.cloud.guests()

    unsure = deployment.failover("group", "release", "freed")
    told = json.loads(
        deployment.failover("group", "release", "freed", "--yes", "-f", "json").stdout
    )
    table = deployment.failover("group", "release", "freed-too", "--yes")

    assert (unsure.returncode, table.returncode) == (1, 0)
    assert "no longer protected" in told["released"]
    assert told["dismissed"] == []
    assert deployment.cloud.guests() == before
    assert deployment.failover("status", "freed").returncode == 1
