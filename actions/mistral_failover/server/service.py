# SPDX-License-Identifier: Apache-2.0
"""The server: its parts, in the order in which they start, and its main loop."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import requests
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext
from sqlalchemy.exc import SQLAlchemyError

import mistral_failover.workflows
from mistral_failover.agent.systemd import Notifier
from mistral_failover.defects import defect
from mistral_failover.embedded.background_sweep import BackgroundSweep
from mistral_failover.embedded.server import EmbeddedMistral, known_to_actions
from mistral_failover.embedded.settings import LOCAL_HTTP
from mistral_failover.errors import CodedError
from mistral_failover.lab.emulator.client import EmulatorClient, EmulatorError
from mistral_failover.metrics.families import Numbers, Sample
from mistral_failover.metrics.numbers import of_server
from mistral_failover.metrics.server import MetricsServer
from mistral_failover.mistral.client import MistralClient, MistralError
from mistral_failover.runtime import process
from mistral_failover.runtime.errors import ActionError, caught
from mistral_failover.runtime.request import Request
from mistral_failover.served_certificate import ServedCertificate
from mistral_failover.server import (
    addresses,
    checks,
    credential,
    emulated,
    redelivery,
    secret,
    state_dir,
)
from mistral_failover.server.options import Options
from mistral_failover.server.receiver import AlarmReceiver
from mistral_failover.server.webhook import Webhook
from mistral_failover.store.database import Database

LOG = logging.getLogger(__name__)
_LOOK = 5.0  # seconds between two looks at Mistral
_ANSWER = 10.0  # seconds within which Mistral must answer


@dataclass(frozen=True)
class Running:
    """A server that is ready: the addresses of Mistral's API, of the webhook, of the metrics, if
    served, and of the emulated cloud, if there is one. ``token_file``: has the API's token.
    ``certificate``: the webhook's."""

    url: str
    token_file: Path
    webhook: str
    metrics: str | None
    emulator: str | None
    health: Health
    certificate: ServedCertificate | None


class Health:
    """Whether alarms would be taken: Mistral answers, and the state store takes what is written.

    :ivar good: at the last look, both.
    """

    def __init__(self, client: MistralClient, database: Database) -> None:
        self._client, self._database = client, database
        self.good = True

    def look(self) -> bool:
        """Ask Mistral for one of the package's workflows, which reads its database, and write to
        the state store: one that is read-only answers, too. Return whether Mistral answers."""
        why: list[str] = []
        try:
            self._client.request("GET", "workflows/failover.on_event")
        except MistralError as error:
            why.append(f"Mistral does not answer: {error}")
        answers = not why
        try:
            self._database.atomically(lambda tx: tx.number())
        except SQLAlchemyError as error:
            why.append(caught(error, "writing to the state store")["message"])
        if why and self.good:
            LOG.error("No alarm can be taken. %s", "; ".join(why))
        self.good = not why
        return answers


Progress = Callable[[str], None]
"""Takes a sentence about what a server that starts does next."""


def _untold(_: str) -> None:
    pass


def serve(
    options: Options,
    told: Callable[[Running], None],
    ended: threading.Event,
    progress: Progress = _untold,
) -> None:
    """Run a server until ``ended`` is set. ``told`` is called once it is ready.

    Raises CodedError with what keeps it from starting; CloudError where the credential does;
    MistralError where the Mistral that just started does not answer.
    """
    notifier = Notifier()
    with running(options, progress) as found:
        notifier.ready()
        told(found)
        cloud = EmulatorClient(found.emulator) if found.emulator else None
        while not ended.wait(_LOOK):
            # systemd restarts a server whose Mistral is stuck.
            if found.health.look():
                notifier.alive()
            if found.certificate is not None:
                try:
                    found.certificate.look()
                except Exception as error:  # a renewal must not end the server
                    defect(error, "looking at the certificate")
            if cloud is not None:
                with contextlib.suppress(requests.RequestException, EmulatorError):
                    cloud.status()  # it ends when it gets no requests for long
        notifier.stopping()


@contextlib.contextmanager
def running(options: Options, progress: Progress = _untold) -> Iterator[Running]:
    """A server that takes orders and alarms while the block lasts. Raises as :func:`serve`."""
    addresses.check_api(options.api)
    pair = options.tls
    addresses.check_webhook(
        options.webhook, tls=pair is not None, secret=options.secret_file is not None
    )
    with ExitStack() as stack:
        stack.enter_context(state_dir.claimed(options.state_dir))
        state_dir.forget(options.state_dir)
        known = secret.read(options.secret_file) if options.secret_file else None
        known = known or secret.read_or_make(options.secret)
        certificate = options.certificate()
        listening = stack.enter_context(addresses.bound(options.webhook, "--webhook-listen"))
        addresses.check_free(options.api, "--listen")
        if options.metrics_port is not None:  # before anything starts
            door = addresses.Address("127.0.0.1", options.metrics_port)
            addresses.check_free(door, "--metrics-port")
        if options.emulated:
            progress("Starting the emulated cloud...")
        cloud = _emulated(stack, options) if options.emulated else None
        options = _with_emulated(options, cloud) if cloud else options
        progress("Starting Mistral...")
        mistral = stack.enter_context(_mistral(options))
        stack.enter_context(known_to_actions(mistral))
        # Mistral's own steps are of no interest here; ours are few.
        logging.getLogger("mistral_failover").setLevel(logging.INFO)
        progress("Installing the workflows...")
        mistral.install_workflows([*mistral_failover.workflows.paths(), *options.workflows])
        state = _store()
        redelivery.redeliver(mistral)
        stack.enter_context(BackgroundSweep(mistral))
        health = Health(mistral.connect(_ANSWER), state.database)
        anonymous = ActionContext(SecurityContext(), ExecutionContext())
        receiver = AlarmReceiver(known, mistral.client, Request(state, anonymous))
        state.certificate = certificate
        serving = certificate.context if certificate else None
        webhook = Webhook(listening, receiver, lambda: health.good, tls=serving)
        stack.enter_context(webhook)
        metrics = _metrics(stack, options)
        emulator = cloud.url if cloud else None
        found = Running(
            mistral.url, mistral.token_file, webhook.url, metrics, emulator, health, certificate
        )
        stack.enter_context(state_dir.announced(options.state_dir, _facts(options, found)))
        yield found


def _emulated(stack: ExitStack, options: Options) -> EmulatorClient:
    return stack.enter_context(emulated.cloud(options.state_dir))


def _with_emulated(options: Options, cloud: EmulatorClient) -> Options:
    """Act in the emulated cloud, and command its guests."""
    channel = {"command_channel": f"emulator+{cloud.url}"}
    return replace(options, cloud=emulated.CLOUD, settings={**options.settings, **channel})


def _mistral(options: Options) -> EmbeddedMistral:
    """Mistral's own state belongs to this server alone: Mistral keeps its next steps in threads, so
    no other process could continue. What must continue is in the state store."""
    if not options.cloud:
        raise CodedError(
            "NO_CLOUD",
            "no cloud is configured",
            "Give --os-cloud with an entry of clouds.yaml, or --emulated.",
        )
    project = credential.project_of(options.cloud, options.state_dir)
    settings = {
        **options.settings,
        "database": options.database,
        "cloud": options.cloud,
        "project": project,
    }
    listen = options.api
    port = listen if isinstance(listen, addresses.Address) else addresses.Address("127.0.0.1", 0)
    return EmbeddedMistral(
        options.state_dir,
        port.port,
        host=port.host,
        names=options.names,
        socket=listen.path if isinstance(listen, addresses.UnixSocket) else None,
        overrides={f"failover.{name}": value for name, value in settings.items()}
        | (LOCAL_HTTP if options.emulated else {}),
    )


def _metrics(stack: ExitStack, options: Options) -> str | None:
    """Serve the metrics of the server's project, or of the state store, on loopback. Raises
    CodedError PORT_TAKEN."""
    port, everything = options.metrics_port, options.metrics_of_all_projects
    if port is None:
        return None
    addresses.check_free(addresses.Address("127.0.0.1", port), "--metrics-port")

    def ask() -> Numbers:
        try:
            numbers = of_server(process.runtime(), all_projects=everything)
        except SQLAlchemyError as error:
            facts = caught(error, "reading the metrics")
            raise ActionError(facts["code"], facts["message"], facts["remedy"]) from None
        if (certificate := process.runtime().certificate) is not None:
            ends: Sample = {"labels": {}, "value": certificate.ends}
            numbers["families"]["certificate_expires"] = [ends]
        return numbers

    return stack.enter_context(MetricsServer(ask, port, names=options.names)).url


def _store() -> process.Runtime:
    """The state store, with its tables. Raises CodedError DATABASE, CONFIG, CLOCKS_DIFFER."""
    try:
        found = process.runtime()
        skew = found.database.skew()
    except CodedError:
        raise
    except Exception as error:
        raise CodedError(
            "DATABASE",
            f"the state store is not usable: {type(error).__name__}",
            "Check its URL and that its server runs: failover server --check.",
        ) from error
    if skew > checks.SKEW:
        raise checks.clocks_differ(skew)
    return found


def _facts(options: Options, found: Running) -> Mapping[str, Any]:
    facts = {
        "url": found.url,
        "token_file": str(found.token_file),
        "pid": os.getpid(),
        "webhook": found.webhook,
        "secret_file": str(options.secret.absolute()),
    }
    clouds = options.state_dir.absolute() / emulated.CLOUDS_FILE
    more = {
        "metrics": found.metrics,
        "emulator": found.emulator,
        "clouds_file": str(clouds) if found.emulator else None,
    }
    return facts | {name: where for name, where in more.items() if where}
