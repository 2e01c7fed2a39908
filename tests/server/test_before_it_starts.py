# SPDX-License-Identifier: Apache-2.0
"""Where a server refuses to listen, what it keeps in its state directory, what --check finds."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat

from mistral_failover import private_files
from mistral_failover.cli import connection
from mistral_failover.errors import CodedError
from mistral_failover.lab.emulator.client import write_clouds_yaml
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.mistral.client import MistralError
from mistral_failover.model.types import installed_types
from mistral_failover.server import (
    addresses,
    checks,
    credential,
    receiver,
    redelivery,
    secret,
    service,
    state_dir,
)
from mistral_failover.server.addresses import Address
from mistral_failover.server.options import Options, from_environment, read_settings, read_url
from mistral_failover.store import groups, schema
from mistral_failover.store.database import Database
from support.commands import failover, server_that_refuses

Private = Callable[[str, str], Path]
ANYWHERE = "0.0.0.0"  # noqa: S104 - it is what must be refused


def code(error: pytest.ExceptionInfo[CodedError]) -> str:
    assert error.value.remedy
    return error.value.code


# -- where it listens


@pytest.mark.parametrize("address", ["0.0.0.0:8989", "192.0.2.7:8989", "[::1]:8989", "[::]:1"])
def test_the_api_stays_on_this_machine(address: str) -> None:
    with pytest.raises(CodedError) as refused:
        addresses.check_api(Address.parse(address))
    assert code(refused) == "LOOPBACK_ONLY"
    assert "ssh -L" in refused.value.remedy


@pytest.mark.parametrize(("tls", "known"), [(False, False), (True, False), (False, True)])
def test_the_webhook_listens_elsewhere_only_with_tls_and_a_secret(tls: bool, known: bool) -> None:
    for host in (ANYWHERE, "192.0.2.7", "[::]"):
        with pytest.raises(CodedError) as refused:
            addresses.check_webhook(Address.parse(f"{host}:8990"), tls=tls, secret=known)
        assert code(refused) == "TLS_AND_SECRET_NEEDED"
        assert ("--tls-cert" in refused.value.message) is not tls
        assert ("--webhook-secret-file" in refused.value.message) is not known
    addresses.check_webhook(Address.parse("127.0.0.1:8990"), tls=tls, secret=known)
    addresses.check_webhook(Address.parse("[::]:8990"), tls=True, secret=True)


@pytest.mark.parametrize("text", ["8989", "host:8989", "127.0.0.1:x", "127.0.0.1:65536", ":1"])
def test_an_address_is_an_ip_address_and_a_port(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of whatever is wrong with it
        Address.parse(text)


def test_a_port_that_is_taken_is_named() -> None:
    with addresses.bound(Address("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(CodedError) as refused:
            addresses.check_free(Address("127.0.0.1", port), "--webhook-listen")
    assert code(refused) == "PORT_TAKEN"
    assert "another port with --webhook-listen." in refused.value.remedy
    assert str(port) in refused.value.remedy


def test_an_address_of_another_machine_can_not_be_used() -> None:
    with pytest.raises(CodedError) as refused:
        addresses.check_free(Address("192.0.2.7", 0))
    assert code(refused) == "ADDRESS_UNUSABLE"


def test_a_server_refuses_before_it_touches_anything(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    for words, told in (
        (["--webhook-listen", "0.0.0.0:0"], "TLS_AND_SECRET_NEEDED"),
        (["--listen", "0.0.0.0:0"], "LOOPBACK_ONLY"),
    ):
        done = server_that_refuses(folder, *words)
        assert (done.returncode, told in done.stderr) == (1, True), done.stderr
    assert not folder.exists()


@pytest.mark.parametrize("option", ["--listen", "--webhook-listen"])
@pytest.mark.parametrize("said", ["8799", "here:8799", "127.0.0.1:", "127.0.0.1:99999"])
def test_what_is_no_address_is_a_wrong_command_line(option: str, said: str) -> None:
    done = failover("server", "--emulated", option, said)

    assert done.returncode == 2
    assert f"argument {option}: expected HOST:PORT" in done.stderr
    assert f"got '{said}'" in done.stderr


# -- the secret


def test_a_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    made = secret.read_or_make(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret.read_or_make(file).token == made.token
    assert secret.read_or_make(tmp_path / "other").token != made.token


def test_a_token_does_not_give_the_secret_away(private: Private) -> None:
    text = "0123456789abcdef" * 2
    assert text not in secret.read(private("secret", text)).token


@pytest.mark.parametrize("text", ["", "\n\n", "x" * 31, "x" * 40 + "\nshort\n"])
def test_a_short_secret_is_refused(private: Private, text: str) -> None:
    with pytest.raises(CodedError) as refused:
        secret.read(private("secret", text))
    assert code(refused) == "SECRET_TOO_SHORT"


def test_no_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CodedError) as refused:
        secret.read(tmp_path / "none")
    assert code(refused) == "SECRET_UNREADABLE"


# -- the state directory


def test_a_server_is_announced_as_long_as_it_is_there(tmp_path: Path) -> None:
    file = tmp_path / state_dir.SERVER_FILE
    assert state_dir.SERVER_FILE == connection.SERVER_FILE
    with state_dir.announced(tmp_path, {"url": "u", "pid": 1}):
        assert json.loads(file.read_text()) == {"url": "u", "pid": 1}
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == []


def test_a_reader_never_finds_half_an_announcement(tmp_path: Path) -> None:
    ended = threading.Event()
    wrong: list[str] = []

    def read() -> None:
        while not ended.is_set():
            try:
                json.loads((tmp_path / "f").read_text())
            except FileNotFoundError:
                continue
            except ValueError as error:
                wrong.append(str(error))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(200):
        private_files.write(tmp_path / "f", json.dumps({"long": "x" * 10_000, "n": number}))
    ended.set()
    reader.join()
    assert wrong == []


def test_two_servers_do_not_share_a_state_directory(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with (
        state_dir.claimed(folder),
        pytest.raises(CodedError) as refused,
        state_dir.claimed(folder),
    ):
        raise AssertionError("it was claimed twice")
    assert code(refused) == "STATE_DIR_IN_USE"
    with state_dir.claimed(folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


# -- what it is told


def test_settings_come_from_a_file(private: Private) -> None:
    file = private(
        "conf", "[DEFAULT]\n[failover]\nlease = 10\ncommand_channel = amqp://u:p%40@h/v\n"
    )
    assert read_settings(file) == {"lease": "10", "command_channel": "amqp://u:p%40@h/v"}
    assert read_url(private("url", " mysql+pymysql://u:p@h/db \n")) == "mysql+pymysql://u:p@h/db"


def test_variables_count_as_options_and_do_not_win_over_the_command_line() -> None:
    environment = {"OS_FAILOVER__LEASE": "7", "OS_CLOUD": "mine", "OS_FAILOVER__NOTHING": "1"}
    assert from_environment(environment) == {"lease": "7"}
    assert environment == {"OS_CLOUD": "mine", "OS_FAILOVER__NOTHING": "1"}


@pytest.mark.parametrize(
    "text",
    ["lease", "[failover]\nleese = 10", "[failover]\nlease\n", "[failover]\nlease = long\n"],
)
def test_a_file_that_says_nothing_that_is_known_is_refused(private: Private, text: str) -> None:
    with pytest.raises(CodedError) as refused:
        read_settings(private("conf", text))
    assert code(refused) == "CONFIG"


def test_files_with_passwords_are_private(private: Private) -> None:
    file = private("conf", "[failover]\ndatabase = mysql://u:p@h/db\n")
    file.chmod(0o644)
    for read in (read_settings, read_url):
        with pytest.raises(CodedError) as refused:
            read(file)
        assert f"chmod 600 {file}" in refused.value.remedy
        assert "u:p" not in str(refused.value)


# -- what --check finds


@pytest.fixture(scope="module")
def cloud() -> Iterator[EmulatedCloud]:
    with EmulatedCloud() as found:
        yield found


@pytest.fixture
def options(cloud: EmulatedCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    """A server without a fault."""
    identity, key = cloud.client.add_application_credential()
    clouds = tmp_path / "clouds.yaml"
    write_clouds_yaml(clouds, "password", cloud.url)
    entries = yaml.safe_load(clouds.read_text())["clouds"]
    auth = {"auth_url": cloud.auth_url, "application_credential_id": identity}
    auth["application_credential_secret"] = key
    entries["mine"] = {"auth_type": "v3applicationcredential", "auth": auth}
    entries["wrong"] = {**entries["mine"], "auth": {**auth, "application_credential_secret": "no"}}
    gone = "http://127.0.0.1:1/v3"
    entries["gone"] = {**entries["mine"], "auth": {**auth, "auth_url": gone}}
    clouds.write_text(yaml.safe_dump({"clouds": entries}))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds))
    free = Address("127.0.0.1", 0)
    channel = {"command_channel": f"emulator+{cloud.url}"}
    return Options(tmp_path / "state", "mine", listen=free, webhook=free, settings=channel)


def found(options: Options) -> dict[str, bool]:
    """The codes, and whether they are grave."""
    rows = checks.run_checks(options)
    assert all(row.message and row.remedy for row in rows), rows
    return {row.code: row.grave for row in rows}


def test_a_server_without_a_fault_is_told_nothing(options: Options) -> None:
    assert checks.run_checks(options) == []
    assert not options.state_dir.exists(), "looking changes nothing"


@pytest.mark.parametrize(
    ("up_to", "told"),
    [
        ("2.50", {"the rung delete needs 2.51 (events)", "the rung host_power needs 2.53"}),
        ("2.52", {"the rung host_power needs 2.53", "the rung storage needs 2.53"}),
        ("2.53", {"the way evacuate needs 2.95"}),
        ("2.95", set()),
    ],
)
def test_what_rungs_and_volumes_need_and_the_cloud_does_not_offer_is_a_warning(
    options: Options, cloud: EmulatedCloud, up_to: str, told: set[str]
) -> None:
    cloud.client.offer("compute", up_to=up_to)
    rows = checks.run_checks(options)
    cloud.client.offer("compute")

    assert {(row.code, row.grave) for row in rows} == ({("NOT_OFFERED", False)} if told else set())
    said = [row.message for row in rows]
    assert all(f"Nova of this cloud offers up to {up_to}; " in each for each in said)
    assert all(any(words in each for each in said) for words in told)


def test_a_password_works_and_is_worth_a_warning(options: Options) -> None:
    assert found(replace(options, cloud="password")) == {"PASSWORD": False}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (None, "NO_CLOUD"),
        ("none", "CONFIG"),
        ("wrong", "CREDENTIAL_REFUSED"),
        ("gone", "UNREACHABLE"),
    ],
)
def test_a_credential_that_does_not_work_is_found(
    options: Options, name: str | None, told: str
) -> None:
    codes = found(replace(options, cloud=name))
    assert list(codes.values()) == [True], codes
    assert told in codes, codes


def test_too_few_and_too_many_roles_are_found(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = credential.cloud_of

    def reach(name: str) -> Any:
        cloud, said = real(name)
        return cloud, replace(said, roles=frozenset({"reader", "admin"}))

    monkeypatch.setattr(credential, "cloud_of", reach)
    assert found(options) == {"ROLE_MISSING": True, "TOO_MANY_RIGHTS": False}


def test_a_service_that_refuses_is_found(options: Options, cloud: EmulatedCloud) -> None:
    cloud.client.api_fault("volume_list", "error", status=403, times=1)
    try:
        codes = found(options)
    finally:
        cloud.client.clear_api_faults()
    assert codes == {"FORBIDDEN": True}


def test_files_and_doors_are_looked_at(options: Options, private: Private, tmp_path: Path) -> None:
    short = private("short", "x")
    (tmp_path / "clouds.yaml").chmod(0o644)
    options.state_dir.mkdir(mode=0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        worse = replace(
            options,
            listen=Address(*taken.getsockname()[:2]),
            webhook=Address(ANYWHERE, 0),
            secret_file=short,
            tls_cert=short,
            tls_key=short,
            settings={},
        )
        codes = found(worse)
    assert codes == {
        "PORT_TAKEN": True,
        "SECRET_TOO_SHORT": True,
        "TLS_PAIR": True,
        "CLOUDS_FILE_OPEN": False,
        "STATE_DIR_OPEN": True,
        "NO_CHANNEL": False,
    }


@pytest.mark.parametrize(
    ("host", "other", "grave"),
    [
        ({"ip": "10.9.0.1"}, {"ip": "10.9.0.2"}, False),
        ({"ip": "10.9.0.1"}, {"ip": "10.9.0.1"}, True),
    ],
)
def test_fence_devices_are_looked_at(
    options: Options, private: Private, host: dict[str, str], other: dict[str, str], grave: bool
) -> None:
    levels = {
        name: [[{"agent": "fence_redfish", "options": each}]]
        for name, each in (("compute-1", host), ("compute-2", other))
    }
    file = private("devices", json.dumps({"projects": ["*"], "hosts": levels}))
    settings = {**options.settings, "fence_devices_file": str(file)}

    assert found(replace(options, settings=settings))["FENCE_DEVICES"] is grave


@pytest.mark.parametrize("folder", ["/proc/self", "/proc/nowhere", "/proc/nowhere/deep"])
def test_a_state_directory_that_cannot_be_written_is_found_also_by_root(
    options: Options, folder: str
) -> None:
    # Where root may do everything, and the file system refuses all the same.
    asked = replace(options, state_dir=Path(folder))

    assert found(asked)["STATE_DIR_UNUSABLE"] is True


def test_a_state_directory_in_use_is_found(options: Options) -> None:
    with state_dir.claimed(options.state_dir):
        assert found(options) == {"STATE_DIR_IN_USE": True}


def test_a_state_directory_that_is_none_is_found(options: Options, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CodedError) as refused:
        state_dir.check_free(file)
    assert code(refused) == "STATE_DIR_UNUSABLE"


def test_to_look_writes_nothing(options: Options) -> None:
    options.state_dir.mkdir(mode=0o700, exist_ok=True)
    before = sorted(options.state_dir.iterdir())
    found(options)
    assert sorted(options.state_dir.iterdir()) == before


def test_a_port_for_metrics_that_is_none_or_taken_is_refused_before_anything_begins(
    options: Options,
) -> None:
    options.state_dir.mkdir(mode=0o700, exist_ok=True)
    with addresses.bound(Address("127.0.0.1", 0)) as listening:
        for port, told in ((listening.getsockname()[1], "PORT_TAKEN"), (70000, "ADDRESS_UNUSABLE")):
            worse = replace(
                options,
                listen=Address("127.0.0.1", 0),
                webhook=Address("127.0.0.1", 0),
                metrics_port=port,
            )
            assert found(worse) == found(options) | {told: True}
            with pytest.raises(CodedError) as refused, service.running(worse):
                raise AssertionError("it runs")
            assert code(refused) == told
            assert not (options.state_dir / "mistral.sqlite").exists()


def test_the_printed_address_is_that_of_the_server_that_runs(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with state_dir.claimed(folder):
        token = secret.read_or_make(folder / "known").token
        facts = {
            "webhook": f"https://{ANYWHERE}:4711{receiver.PATH}",
            "secret_file": str(folder / "known"),
        }
        with state_dir.announced(folder, facts):
            printed = failover("server", "--state-dir", str(folder), "--print-webhook")
    assert (printed.returncode, printed.stdout) == (0, f"{facts['webhook']}/{token}\n")
    assert f"replace {ANYWHERE}" in printed.stderr

    secret.read_or_make(folder / "webhook-secret")
    private_files.write(folder / state_dir.SERVER_FILE, json.dumps(facts))  # of a killed one
    alone = failover("server", "--state-dir", str(folder), "--print-webhook")
    assert alone.stdout.startswith(f"http://127.0.0.1:8990{receiver.PATH}/")
    assert alone.stderr == ""


# -- what a dead one has left


class Left:
    """A Mistral in which a dead process left alarms, of which it takes all but some again."""

    def __init__(self, refuses: str, why: str) -> None:
        self.refuses, self.why = refuses, why
        self.taken: list[str] = []
        self.ended = False
        self.client = self

    def stale_executions(self) -> list[dict[str, Any]]:
        row = {"workflow_name": "failover.on_event", "root_execution_id": None}
        return [row | {"id": each} for each in ("one", "two", "three")]

    def execution(self, identity: str) -> dict[str, Any]:
        return {"workflow_name": "failover.on_event", "input": {"of": identity}}

    def start(self, _workflow: str, given: dict[str, Any], **_more: Any) -> dict[str, Any]:
        if given["of"] == self.refuses:
            raise MistralError(self.why, "no", "none")
        self.taken.append(given["of"])
        return {"id": "again"}

    def cancel_stale(self) -> list[str]:
        self.ended = True
        return []


def test_an_alarm_that_is_refused_again_keeps_no_other_and_no_server_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    left = Left("one", "MISTRAL_REFUSED")
    redelivery.redeliver(left)  # type: ignore[arg-type]
    assert (left.taken, left.ended) == (["two", "three"], True)
    assert "execution one: send it again" in caplog.text

    away = Left("two", "MISTRAL_UNREACHABLE")
    with pytest.raises(MistralError):
        redelivery.redeliver(away)  # type: ignore[arg-type]
    assert not away.ended, "so none of them is lost"


def test_a_certificate_that_is_over_is_found(options: Options, tmp_path: Path) -> None:
    pair = tmp_path / "cert.pem", tmp_path / "key.pem"
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    over = made.not_valid_before(datetime(2020, 1, 1)).not_valid_after(datetime(2020, 1, 2))
    pair[0].write_bytes(over.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    pair[1].write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    pair[1].chmod(0o600)
    worse = replace(options, tls_cert=pair[0], tls_key=pair[1])
    assert found(worse) == {"TLS_CERTIFICATE": True}
    assert found(replace(worse, tls_key=None)) == {"TLS_PAIR": True}
    pair[1].chmod(0o644)
    assert found(worse) == {"TLS_KEY_OPEN": True}


def test_databases_that_can_not_be_used_are_found(options: Options, tmp_path: Path) -> None:
    away = "mysql+pymysql://nobody:geheim@127.0.0.1:1/failover"
    rows = checks.run_checks(replace(options, settings={**options.settings, "database": away}))
    assert [row.code for row in rows] == ["DATABASE"]
    assert "geheim" not in str(rows)

    later = f"sqlite:///{tmp_path / 'later.sqlite'}"
    engine = sa.create_engine(later)
    table = sa.Table(schema.VERSION_TABLE, sa.MetaData(), sa.Column("version_num", sa.String(32)))
    with engine.begin() as connection:
        table.create(connection)
        connection.execute(table.insert().values(version_num="9999"))
    engine.dispose()
    worse = replace(options, settings={**options.settings, "database": later})
    assert found(worse) == {"SCHEMA_UNKNOWN": True}


@pytest.mark.parametrize("url", ["postgresql://u:geheim@h/db", "postgresql+psycopg://u:geheim@h/d"])
def test_a_database_of_another_kind_is_refused_before_mistral_starts(
    options: Options, url: str
) -> None:
    worse = replace(options, settings={**options.settings, "database": url})

    (row,) = checks.run_checks(worse)
    with pytest.raises(CodedError) as refused, service.running(worse):
        raise AssertionError("it runs")

    assert (row.grave, row.code) == (True, "CONFIG")
    assert row.message == "[failover] database names postgresql, which is not supported"
    assert "sqlite:///" in row.remedy
    assert "mysql+pymysql://" in row.remedy
    assert (refused.value.code, refused.value.message) == (row.code, row.message)
    assert "geheim" not in str((row, refused.value))


def test_a_channel_that_can_not_be_used_is_found(options: Options, private: Private) -> None:
    key = private("key", "x" * 40)
    for url, told in (
        ("carrier-pigeon://x", "CONFIG"),
        ("amqp://u:p@127.0.0.1:1/v", "UNREACHABLE"),
    ):
        worse = replace(options, settings={"command_channel": url, "agent_key_file": str(key)})
        rows = checks.run_checks(worse)
        assert [row.code for row in rows] == [told], rows
        assert "u:p" not in str(rows)


# -- whose the groups are


def test_the_project_is_the_credential_s_and_is_remembered_while_keystone_is_away(
    options: Options, cloud: EmulatedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = options.state_dir
    folder.mkdir()
    project = credential.project_of("mine", folder)
    assert project == credential.cloud_of("mine")[1].project
    kept = (folder / "project.json").read_text()
    assert os.environ["OS_CLIENT_CONFIG_FILE"] not in kept

    from mistral_failover.cloud.errors import CloudError

    def away(name: str) -> Any:
        raise CloudError("UNREACHABLE", f"{name} is away")

    monkeypatch.setattr(credential, "cloud_of", away)
    assert credential.project_of("mine", folder, pause=lambda _: None) == project
    with pytest.raises(CloudError):
        credential.project_of("password", folder, pause=lambda _: None)


def test_rules_that_a_credential_lacks_are_found(
    options: Options, cloud: EmulatedCloud, tmp_path: Path
) -> None:
    rules = json.loads(failover("server", "--print-access-rules", "--os-cloud", "mine").stdout)
    held = [rule for rule in rules if rule["path"] != "/compute/v2.1/servers/*/action"]
    for number, given in enumerate((rules, held)):
        identity, key = cloud.client.add_application_credential(access_rules=given)
        known = yaml.safe_load((tmp_path / "clouds.yaml").read_text())
        auth = {**known["clouds"]["mine"]["auth"], "application_credential_id": identity}
        auth["application_credential_secret"] = key
        known["clouds"][f"ruled{number}"] = {**known["clouds"]["mine"], "auth": auth}
        (tmp_path / "clouds.yaml").write_text(yaml.safe_dump(known))

    assert found(replace(options, cloud="ruled0")) == {}
    (row,) = checks.run_checks(replace(options, cloud="ruled1"))

    assert (row.code, row.grave) == ("ACCESS_RULES", False)
    assert "method: POST, path: /compute/v2.1/servers/*/action" in row.message
    assert "--print-access-rules" in row.remedy


def test_a_cloud_without_heat_is_enough_for_groups_without_a_stack(
    options: Options, cloud: EmulatedCloud
) -> None:
    cloud.client.configure(endpoints={"orchestration": None})
    try:
        assert found(options) == {}
    finally:
        cloud.client.configure(endpoints={})


OPTIONAL = {
    "floating_ip": "port_list",
    "load_balancer_member": "pool_list",
    "dns_record": "zone_list",
    "alarm": "alarm_list",
}


@pytest.mark.parametrize("kind", OPTIONAL)
def test_every_service_that_a_group_uses_is_asked(
    options: Options, cloud: EmulatedCloud, kind: str
) -> None:
    cloud.client.api_fault(OPTIONAL[kind], status=503, times=9)
    assert found(options) == {}, "no group uses it"

    options.state_dir.mkdir(mode=0o700)
    database = Database(options.database)
    schema.upgrade(database)
    definition = {"document": {}, "types": [installed_types()[kind].to_dict()]}
    database.for_project("p").atomically(lambda tx: groups.define(tx, "payments", definition))
    database.close()

    rows = checks.run_checks(options)
    assert [(row.code, row.grave) for row in rows] == [("SERVER_ERROR", True)]
    assert f"was asked at {cloud.url}/" in rows[0].message
