# SPDX-License-Identifier: Apache-2.0
"""What other tools install the package with: whatever such a file names exists here."""

from __future__ import annotations

import configparser
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from bindep.depends import Depends

from mistral_failover.settings import list_opts
from support.pages import PAGES, ROOT

DEPLOY = ROOT / "deploy"
PLUGIN = ROOT / "devstack"
SCRIPTS = [
    *(PLUGIN / name for name in ("plugin.sh", "settings")),
    *(DEPLOY / "debian" / name for name in ("postinst", "prerm", "postrm")),
]


def tool(name: str) -> str:
    """A program of the extra ``lint``."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found, f"{name} is missing: make .venv/.installed"
    return found


def extras() -> set[str]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    return set(setup["options.extras_require"])


def programs() -> set[str]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = setup["options.entry_points"]["console_scripts"].split("\n")
    agent = tomllib.loads((ROOT / "agent" / "pyproject.toml").read_text("utf-8"))["project"]
    return {line.split("=")[0].strip() for line in lines if line} | set(agent["scripts"])


def options() -> set[str]:
    """The names of the options in ``[failover]``."""
    ((group, found),) = list_opts()
    assert str(group) == "failover"
    return {option.dest for option in found}


def targets() -> set[str]:
    """What make can make."""
    return set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


# -- requirements with an extra, wherever they are written

REQUIREMENT = re.compile(r"mistral-failover\[([\w,]+)\]|\*\.whl\)\[([\w,]+)\]")


def test_every_extra_that_is_installed_exists() -> None:
    files = [ROOT / "Containerfile", *(p for p in DEPLOY.rglob("*.*") if p.suffix != ".pyc")]
    texts = {**PAGES, **{str(path): path.read_text("utf-8") for path in files if path.is_file()}}
    named = {
        extra
        for text in texts.values()
        for found in REQUIREMENT.findall(text)
        for extra in "".join(found).split(",")
    }

    assert named >= {"mysql", "embedded"}
    assert named - extras() == set()


# -- Containerfile


def instructions() -> Iterator[tuple[str, list[str]]]:
    """Each instruction with its words."""
    text = (ROOT / "Containerfile").read_text("utf-8")
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    for line in joined.splitlines():
        if line:
            word, _, rest = line.partition(" ")
            yield word, yaml.safe_load(rest) if rest.startswith("[") else shlex.split(rest)


def test_hadolint_finds_nothing_in_the_containerfile() -> None:
    subprocess.run([tool("hadolint"), str(ROOT / "Containerfile")], check=True)


def test_what_the_images_copy_exists_and_reaches_the_builder() -> None:
    admitted = {
        line.removeprefix("!").strip()
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        source.removeprefix("./")
        for word, words in instructions()
        if word == "COPY" and not words[0].startswith("--from")
        for source in words[:-1]
    }

    assert copied == admitted
    assert [path for path in copied if not (ROOT / path).exists()] == []


def test_the_wheel_in_the_image_is_built_from_all_its_sources() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    folders = re.findall(r"= (\w+)$", setup["options"]["package_dir"], re.MULTILINE)
    copied = {words[0] for word, words in instructions() if word == "COPY" and len(words) == 2}

    assert set(folders) <= copied
    assert "WORKDIR /src" in (ROOT / "Containerfile").read_text()


def test_stages_are_defined_before_they_are_used() -> None:
    stages: list[str] = []
    for word, words in instructions():
        if word == "FROM":
            image, _, stage = words
            assert image in stages or image.startswith("${")
            stages.append(stage)
        elif word == "COPY" and words[0].startswith("--from="):
            assert words[0].removeprefix("--from=") in stages

    assert {"agent", "server", "mistral"} <= set(stages)
    assert stages[-1] == "server"


def test_the_images_start_programs_that_exist_with_arguments_that_they_take() -> None:
    entries = [words[0] for word, words in instructions() if word == "ENTRYPOINT"]
    commands = [words for word, words in instructions() if word == "CMD"]

    assert set(entries) <= programs()
    for program, words in zip(entries, commands, strict=True):
        done = subprocess.run(
            [tool(program), words[0], "--help"], capture_output=True, text=True, check=True
        )
        missing = [word for word in words if word[:2] == "--" and word not in done.stdout]
        assert missing == []


# -- Kolla

BASE = """\
{% import "macros.j2" as macros with context %}
RUN install Mistral
{% block mistral_base_footer %}{% endblock %}
"""
MACROS = """\
{% macro install_pip(packages) -%}
python3 -m pip --no-cache-dir install -c constraints {{ packages | join(' ') }}
{%- endmacro %}
"""


def test_the_override_for_kolla_adds_the_package_to_the_base_of_mistrals_images() -> None:
    """As Kolla renders it: the override extends each image's template, imports and all."""
    templates = {
        "macros.j2": MACROS,
        "override": (DEPLOY / "kolla" / "template-overrides.j2").read_text("utf-8"),
    }
    environment = jinja2.Environment(loader=jinja2.DictLoader(templates), autoescape=False)  # noqa: S701

    def rendered(template: str) -> list[str]:
        parent = environment.from_string(template)
        text = environment.get_template("override").render(parent_template=parent)
        return [line for line in text.splitlines() if line]

    first, *wheel, last = rendered(BASE)
    assert first == "RUN install Mistral"
    assert "--no-deps --only-binary :all: --require-hashes" in " ".join(wheel)
    constrained = "RUN python3 -m pip --no-cache-dir install -c constraints"
    assert last == f"{constrained} 'mistral-failover[mysql]==VERSION'"
    assert rendered("RUN something else\n") == ["RUN something else"]


# -- OpenStack-Ansible and OpenStack-Helm


def osa() -> dict[str, Any]:
    file = DEPLOY / "openstack-ansible" / "user_variables_failover.yml"
    found: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
    return found


def helm() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "openstack-helm" / "mistral.yaml").read_text())
    return found


@pytest.mark.parametrize(
    "section",
    [osa()["mistral_mistral_conf_overrides"], helm()["conf"]["mistral"]],
    ids=["openstack-ansible", "openstack-helm"],
)
def test_the_options_that_are_set_in_mistral_conf_exist(section: dict[str, Any]) -> None:
    assert set(section) == {"action_providers", "failover"}
    assert section["action_providers"] == {"denylist": "dynamic"}  # code that users upload
    assert {"database", "command_channel", "agent_key_file"} == set(section["failover"])
    assert set(section["failover"]) <= options()


def test_openstack_ansible_gets_cron_triggers_for_the_sweep() -> None:
    assert osa()["mistral_api_use_uwsgi"] is False


def test_openstack_helm_gets_one_image_for_every_process_of_mistral() -> None:
    images = helm()["images"]["tags"]

    assert {f"mistral_{name}" for name in ("api", "db_sync", "engine", "executor")} < set(images)
    assert len(set(images.values())) == 1


def test_openstack_helm_mounts_the_key_where_the_executor_looks_and_not_for_everybody() -> None:
    mounts = helm()["pod"]["mounts"]["mistral_executor"]["mistral_executor"]
    (mount,), (volume,) = mounts["volumeMounts"], mounts["volumes"]
    key = Path(helm()["conf"]["mistral"]["failover"]["agent_key_file"])

    assert (mount["name"], mount["mountPath"]) == (volume["name"], str(key.parent))
    assert volume["secret"]["defaultMode"] == 0o440  # the agent's secret is refused with more


# -- DevStack

STUBS = r"""
say() { echo "$@" >> "$CALLS"; }
for name in define_plugin plugin_requires enable_service setup_develop recreate_database \
            run_process stop_process echo_summary; do
    eval "$name() { say $name \"\$@\"; }"
done
is_service_enabled() { [[ " $SERVICES " == *" $1 "* ]]; }
database_connection_url() { echo "mysql+pymysql://root:pw@127.0.0.1/$1?charset=utf8&plugin=x"; }
iniset() { say "$2.$3=$4"; }
die() { say die "$2"; exit 1; }
sudo() { "$@"; }
"""
"""DevStack's functions, which write down that they were called."""


def plugin(tmp_path: Path, *phase: str, **variables: str) -> tuple[int, list[str]]:
    """What the plugin asks of DevStack in a phase: its exit code, and the calls."""
    calls = tmp_path / "calls"
    calls.write_text("")
    script = (
        f"{STUBS}\nset -eu\nsource {PLUGIN}/settings\nsource {PLUGIN}/plugin.sh {' '.join(phase)}"
    )
    environment = {
        "CALLS": str(calls),
        "SERVICES": "mistral mysql",
        "DATABASE_TYPE": "mysql",
        "MISTRAL_CONF_FILE": "/etc/mistral/mistral.conf",
        "MISTRAL_BIN_DIR": "/opt/stack/bin",
        "FAILOVER_AGENT_KEY_FILE": str(tmp_path / "agents.key"),
        **variables,
    }
    done = subprocess.run(
        ["bash", "-c", script], env={"PATH": os.environ["PATH"], **environment}, check=False
    )
    settings = ("define_plugin", "plugin_requires", "enable_service", "echo_summary")
    return done.returncode, [
        line for line in calls.read_text().splitlines() if not line.startswith(settings)
    ]


def test_the_shell_scripts_have_no_faults_that_shellcheck_knows() -> None:
    subprocess.run([tool("shellcheck"), *map(str, SCRIPTS)], check=True)


def test_the_plugin_installs_this_checkout_with_its_driver_of_the_database(tmp_path: Path) -> None:
    assert plugin(tmp_path, "stack", "install") == (
        0,
        [f"setup_develop {ROOT}/agent", f"setup_develop {ROOT} mysql"],
    )


def test_the_plugin_makes_a_store_and_names_it_without_devstacks_options(tmp_path: Path) -> None:
    assert plugin(tmp_path, "stack", "post-config") == (
        0,
        [
            "recreate_database failover",
            "failover.database=mysql+pymysql://root:pw@127.0.0.1/failover",
            "action_providers.denylist=dynamic",
        ],
    )


def test_the_plugin_makes_a_secret_that_only_mistral_reads_if_there_is_a_broker(
    tmp_path: Path,
) -> None:
    key = tmp_path / "agents.key"
    broker = "amqps://failover:pw@broker/failover"

    code, calls = plugin(tmp_path, "stack", "post-config", FAILOVER_COMMAND_CHANNEL=broker)

    assert code == 0
    assert calls[3:] == [f"failover.command_channel={broker}", f"failover.agent_key_file={key}"]
    assert (key.stat().st_mode & 0o777, len(key.read_text().strip())) == (0o600, 64)
    secret = key.read_text()
    plugin(tmp_path, "stack", "post-config", FAILOVER_COMMAND_CHANNEL=broker)
    assert key.read_text() == secret


def test_the_options_that_the_plugin_sets_exist() -> None:
    text = (PLUGIN / "plugin.sh").read_text()

    named = set(re.findall(r'iniset "\$MISTRAL_CONF_FILE" failover (\w+)', text))
    assert named == {"database", "command_channel", "agent_key_file"}
    assert named <= options()


def test_the_plugin_refuses_a_database_that_the_store_does_not_know(tmp_path: Path) -> None:
    code, calls = plugin(tmp_path, "stack", "post-config", DATABASE_TYPE="postgresql")

    assert code == 1
    assert calls == ["die mistral-failover needs MySQL, not postgresql: enable_service mysql"]


def test_the_plugin_starts_and_stops_what_processes_cron_triggers(tmp_path: Path) -> None:
    """Mistral's API runs in uWSGI in DevStack, and does not process them there."""
    server = "/opt/stack/bin/mistral-server --server periodic"
    started = f"run_process failover-periodic {server} --config-file /etc/mistral/mistral.conf"

    assert plugin(tmp_path, "stack", "extra") == (0, [started])
    assert plugin(tmp_path, "unstack") == (0, ["stop_process failover-periodic"])


def test_the_plugin_does_nothing_in_other_phases_or_without_mistral(tmp_path: Path) -> None:
    assert plugin(tmp_path, "stack", "pre-install") == (0, [])
    assert plugin(tmp_path, "stack", "test-config") == (0, [])
    assert plugin(tmp_path, "stack", "install", SERVICES="mysql") == (0, [])


def test_the_process_that_the_plugin_starts_is_one_that_mistral_has() -> None:
    assert importlib.util.find_spec("mistral.services.periodic_server")


# -- bindep and tox


def test_bindep_reads_what_each_profile_needs() -> None:
    depends = Depends((ROOT / "bindep.txt").read_text())

    def needed(*profiles: str) -> set[str]:
        return {rule[0] for rule in depends.active_rules([*profiles, "platform:dpkg"])}

    assert needed() == {"git", "make", "python3-venv"}
    fences = {"fence-agents", "openipmi", "ipmitool", "openssl"}
    assert needed("test") - needed() == {"mariadb-server", *fences}
    assert needed("broker") - needed() == {"rabbitmq-server"}
    assert needed("drills") - needed() == {"bash-completion", "fish", "zsh"}
    assert needed("browser") - needed() == {"chromium"}
    assert needed("package") - needed() == {"mmdebstrap"}


def test_every_environment_of_tox_calls_a_target_of_the_makefile() -> None:
    done = subprocess.run(
        [tool("tox"), "config", "--core", "-e", "lint,docs,test,py3", "-k", "commands"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    called = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("commands")]
    assert called == ["lint", "docs", "test", "test"]
    assert set(called) <= targets()
