# SPDX-License-Identifier: Apache-2.0
"""Problems of a server, found before it starts. The checks leave nothing behind.

The action ``failover.doctor`` finds the problems of each group once the server runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from keystoneauth1.session import Session
from openstack import config as clouds

from mistral_failover import private_files
from mistral_failover.agent.broker import ERRORS, Broker, forget
from mistral_failover.agent.channel.interface import ChannelContext, ChannelError, channel_for
from mistral_failover.agent.channel.links import BrokerUnavailable
from mistral_failover.cloud import access_rules
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.doctor.rights import ROLE, lacking, listed
from mistral_failover.embedded import access, boot
from mistral_failover.errors import CodedError
from mistral_failover.resources.fence import devices
from mistral_failover.resources.offered import all_needs, asked, unmet
from mistral_failover.runtime.errors import caught
from mistral_failover.server import addresses, credential, secret, state_dir
from mistral_failover.server.options import Options
from mistral_failover.store import groups, schema
from mistral_failover.store.database import Database

SKEW = 5.0
"""Seconds by which the clocks of the state store and of this machine may differ. Alarms and
commands bear a time, and are refused if they seem to be old."""


@dataclass(frozen=True)
class StartProblem:
    """``grave``: the server would not start, or would fail nothing over."""

    grave: bool
    code: str
    message: str
    remedy: str


def run_checks(options: Options) -> list[StartProblem]:
    """Return all findings, grave or not."""
    found: list[StartProblem] = []
    for check in _CHECKS:
        try:
            found += check(options)
        except (CodedError, CloudError, ChannelError) as error:
            found.append(_grave(error))
    return found


def _mistral(_options: Options) -> Iterator[StartProblem]:
    boot.check_mistral()
    yield from ()


def _place(options: Options) -> Iterator[StartProblem]:
    folder = options.state_dir
    if not folder.exists():
        parent = next(each for each in folder.absolute().parents if each.exists())
        try:
            state_dir.try_writing(parent)
        except OSError as error:
            yield StartProblem(
                True,
                "STATE_DIR_UNUSABLE",
                f"the state directory {folder} cannot be created in {parent}: {error.strerror}",
                "Name another one with --state-dir.",
            )
        return
    state_dir.check_free(folder)
    if (folder / access.TOKEN_FILE).exists():
        access.token(folder)


def _addresses(options: Options) -> Iterator[StartProblem]:
    asked: list[Callable[[], None]] = [
        partial(addresses.check_api, options.api),
        partial(
            addresses.check_webhook,
            options.webhook,
            tls=options.tls is not None,
            secret=options.secret_file is not None,
        ),
    ]
    if not (options.state_dir / state_dir.SERVER_FILE).exists():  # otherwise the running server did
        doors = [(options.api, "--listen"), (options.webhook, "--webhook-listen")]
        if options.metrics_port is not None:
            metrics = addresses.Address("127.0.0.1", options.metrics_port)
            doors.append((metrics, "--metrics-port"))
        asked += [partial(addresses.check_free, *each) for each in doors]
    for check in asked:
        try:
            check()
        except CodedError as error:
            yield _grave(error)


def _secret(options: Options) -> Iterator[StartProblem]:
    if options.secret_file is not None or options.secret.exists():
        secret.read(options.secret)
    yield from ()


def _certificate(options: Options) -> Iterator[StartProblem]:
    certificate = options.certificate()
    for each in certificate.problems() if certificate else ():
        yield StartProblem(each.grave, each.code, each.message, each.remedy)


def _database(options: Options) -> Iterator[StartProblem]:
    try:
        if not _is_there(options):
            return
        with closing(Database(options.database)) as database:
            there, _ = schema.revisions(database)
            skew = database.skew()
    except (sa.exc.SQLAlchemyError, ImportError, OSError) as error:
        if isinstance(error, sa.exc.SQLAlchemyError):
            caught(error, "reading the state store")
        why = str(getattr(error, "orig", None) or type(error).__name__)
        yield StartProblem(
            True,
            "DATABASE",
            f"the state store is not reachable: {why}",
            "Check the URL, that the database server runs, and that its user may create tables "
            "there. For MariaDB: pip install 'mistral-failover[mysql]'.",
        )
        return
    try:
        schema.check(there)
    except CodedError as unknown:
        yield _grave(unknown)
    if skew > SKEW:
        yield _grave(clocks_differ(skew))


def clocks_differ(skew: float) -> CodedError:
    """The refusal of a database whose clock differs from this machine's by more than ``SKEW``."""
    return CodedError(
        "CLOCKS_DIFFER",
        f"the clocks of the state store and of this machine differ by {skew:.1f} s",
        "Synchronize the clocks of both hosts with chrony or ntpd.",
    )


def _cloud(options: Options) -> Iterator[StartProblem]:
    if options.emulated:
        return  # it starts with the server
    name = options.cloud
    if name is None:
        yield StartProblem(
            True,
            "NO_CLOUD",
            "no cloud is configured",
            "Give --os-cloud with an entry of clouds.yaml, or --emulated.",
        )
        return
    yield from _clouds_file()
    cloud, found = credential.cloud_of(name)
    if lacking(found.roles):
        yield StartProblem(
            True,
            "ROLE_MISSING",
            f"the credential of {name} has the roles {listed(found.roles)}",
            f"Create one with the role {ROLE}: openstack application credential create failover "
            f"--role {ROLE}",
        )
    if "admin" in found.roles:
        yield StartProblem(
            False,
            "TOO_MANY_RIGHTS",
            f"the credential of {name} has administrator rights",
            f"openstack application credential create failover --role {ROLE}",
        )
    if not found.application:
        yield StartProblem(
            False,
            "PASSWORD",
            f"{name} holds the password of {found.user}, which gives all rights of that user",
            f"openstack application credential create failover --role {ROLE}",
        )
    for rule in access_rules.lacking(cloud):
        yield StartProblem(
            False,
            "ACCESS_RULES",
            f"the credential of {name} lacks an access rule: {rule}",
            "Create one with the rules that failover server --print-access-rules prints; leave out "
            "those of what your groups do not use.",
        )
    for each in asked(cloud, _definitions(options)):
        if each.error is not None:
            where = f" ({each.service} was asked at {each.place})" if each.place else ""
            problem = _grave(each.error)
            yield replace(problem, message=f"{problem.message.rstrip('.')}{where}")
    for lack in unmet(cloud, all_needs()):
        yield StartProblem(False, "NOT_OFFERED", lack.sentence, lack.remedy)


def _clouds_file() -> Iterator[StartProblem]:
    """Check clouds.yaml and secure.yaml, which openstacksdk reads itself."""
    known = clouds.OpenStackConfig()
    for file in (known.config_filename, known.secure_config_filename):
        if file is None:
            continue
        try:
            with private_files.opened(Path(file), installed=True):
                pass
        except private_files.NotPrivate as error:
            yield StartProblem(False, "CLOUDS_FILE_OPEN", error.message, error.remedy)


def _definitions(options: Options) -> list[Mapping[str, Any]]:
    """Return the definitions of the groups in the state store; none if it cannot be read, which is
    another finding."""
    try:
        if not _is_there(options):
            return []
        with closing(Database(options.database)) as database:
            there, needed = schema.revisions(database)
            if there != needed:
                return []
            return database.reading(groups.used_definitions)
    except sa.exc.SQLAlchemyError as error:
        caught(error, "reading the definitions of the groups")
        return []
    except (CodedError, ImportError, OSError):
        return []


def _is_there(options: Options) -> bool:
    """Return whether the state store may be there: one in a file is created with the server."""
    url = sa.engine.make_url(options.database)
    return url.get_backend_name() != "sqlite" or Path(url.database or "").exists()


def _channel(options: Options) -> Iterator[StartProblem]:
    if options.emulated:
        return
    url = options.settings.get("command_channel")
    if not url:
        yield StartProblem(
            False,
            "NO_CHANNEL",
            "no command_channel is set, so no command can reach a member's agent",
            "Set command_channel in the section [failover] of --config-file: see docs/broker.md.",
        )
        return
    context = ChannelContext(Session(), Unguarded(10.0), options.settings.get("agent_key_file"))
    channel_for(url, context)
    if url.startswith("amqp"):
        yield from _broker(url)


def _broker(url: str) -> Iterator[StartProblem]:
    broker = Broker(url)
    try:
        forget(broker.connect())
    except ERRORS as error:
        yield StartProblem(
            True,
            "UNREACHABLE",
            str(BrokerUnavailable(broker.shown, error)),
            "Check its URL, user and password, and that it runs: see docs/broker.md.",
        )


def _fences(options: Options) -> Iterator[StartProblem]:
    file = options.settings.get("fence_devices_file")
    if not file:
        return
    try:
        known = devices.read(Path(file))
    except devices.NoDevices as broken:
        yield StartProblem(
            True,
            "FENCE_DEVICES",
            f"{broken.message}: {broken.detail}",
            "Correct the file: see docs/fencing.md.",
        )
        return
    for path, unclear in known.unclear():
        yield StartProblem(
            False, "FENCE_DEVICES", f"{file}: {path}: {unclear}", "State systems_uri in options."
        )


def _grave(error: CodedError | CloudError | ChannelError) -> StartProblem:
    return StartProblem(True, error.code, error.message, error.remedy)


_CHECKS: tuple[Callable[[Options], Iterable[StartProblem]], ...] = (
    *(_mistral, _place, _addresses, _secret, _certificate, _database, _cloud, _channel, _fences),
)
