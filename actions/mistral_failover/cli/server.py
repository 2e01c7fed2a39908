# SPDX-License-Identifier: Apache-2.0
"""``failover server``: Mistral with the package for a tenant whose cloud has none."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import logging
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cliff.lister import Lister

from mistral_failover.cli import connection
from mistral_failover.cli.arguments import argument, as_written, one_of
from mistral_failover.cli.base import FittedOutput, for_people
from mistral_failover.cli.exporter import address

_DEFAULT_API, _DEFAULT_WEBHOOK = "unix:api.sock", "127.0.0.1:8990"
_DEFAULT_UI = "127.0.0.1:8991"


def _address(text: str) -> Any:
    """Parse an address to listen on. Raises ArgumentTypeError."""
    from mistral_failover.server import addresses

    return _parsed(addresses.Address.parse, text, "HOST:PORT with the host's IP address")


def _api_address(text: str) -> Any:
    """Parse the address of Mistral's API. Raises ArgumentTypeError."""
    from mistral_failover.server import addresses

    return _parsed(addresses.parse_api, text, "HOST:PORT with the host's IP address, or unix:PATH")


class Server(FittedOutput, Lister):
    """Run Mistral with this package here, against your cloud or an emulated one.

    For tenants whose cloud has no Mistral, and for trying the package:

        failover server --emulated                  an emulated cloud, and instructions
        failover server --check --os-cloud NAME     the problems that would keep it from working
        failover server --os-cloud NAME             the cloud of that entry of clouds.yaml

    Every other command reaches it with --embedded, as the same user. It runs until SIGTERM or
    Ctrl-C, and continues the work of a killed server by itself. Alarms come in through the webhook,
    authenticated by a secret: --print-webhook shows the address for senders that cannot sign. Two
    servers of one tenant, each with its own --state-dir, share a MariaDB (--database-file); either
    can die at any time.

    Exit codes of --check: 0 it would work, 1 it would not.
    """

    arguments = (
        as_written,
        argument(
            "--state-dir",
            type=Path,
            metavar="DIR",
            help=(
                f"the state directory (default --server-state, ${connection.STATE_VARIABLE}, or "
                "~/.local/state/mistral-failover)"
            ),
        ),
        one_of(
            argument(
                "--database",
                metavar="URL",
                help="the state store (default SQLite in the state directory); two servers share "
                "one, as in mysql+pymysql://user@host/failover",
            ),
            argument(
                "--database-file",
                type=Path,
                metavar="FILE",
                help="a file with that URL, for a URL with a password",
            ),
        ),
        argument(
            "--config-file",
            type=Path,
            metavar="FILE",
            help="a file with the section [failover]: command_channel, agent_key_file, lease, ...",
        ),
        argument(
            "--listen",
            type=_api_address,
            default=_DEFAULT_API,
            metavar="HOST:PORT|unix:PATH",
            help=(
                f"the address of Mistral's API: a unix socket (default {_DEFAULT_API}; a relative "
                "PATH is in the state directory), or an address of loopback for clients that need "
                "one, such as OpenStack's (port 0: any)"
            ),
        ),
        argument(
            "--api-name",
            action="append",
            default=[],
            metavar="NAME",
            help="a further name by which clients call Mistral's API and the metrics, besides "
            "their addresses and localhost; may be repeated. Requests by other names are refused",
        ),
        argument(
            "--webhook-listen",
            type=_address,
            default=_DEFAULT_WEBHOOK,
            metavar="HOST:PORT",
            help=(
                f"the address for alarms (default {_DEFAULT_WEBHOOK}); other than loopback only "
                "with TLS and a secret file"
            ),
        ),
        argument(
            "--webhook-secret-file",
            type=Path,
            metavar="FILE",
            help=(
                "the secrets of the senders of alarms, one per line (default: one is created in "
                "the state directory)"
            ),
        ),
        argument("--tls-cert", type=Path, metavar="FILE", help="the webhook's certificate, PEM"),
        argument("--tls-key", type=Path, metavar="FILE", help="its key, PEM"),
        argument(
            "--metrics-port",
            type=int,
            metavar="PORT",
            help=(
                "serve /metrics of the server's project for Prometheus on 127.0.0.1 (default: not "
                "at all)"
            ),
        ),
        argument(
            "--metrics-of-all-projects",
            action="store_true",
            help="let them cover every project in the state store",
        ),
        argument(
            "--workflows",
            nargs="+",
            type=Path,
            default=[],
            metavar="FILE",
            help="workflows of your own types, beside the package's",
        ),
        argument(
            "--emulated",
            action="store_true",
            help="use an emulated cloud, which starts beside it with an example stack",
        ),
        argument(
            "--ui",
            nargs="?",
            type=address,
            const=address(_DEFAULT_UI),
            metavar="HOST:PORT",
            help=f"serve the web page of 'failover ui' too, on loopback (default {_DEFAULT_UI}), "
            "without its orders",
        ),
        argument(
            "--ui-orders",
            action="store_true",
            help="let that page give orders, to every user who can read the links that this prints",
        ),
        argument("--check", action="store_true", help="only show problems; start nothing"),
        argument(
            "--print-webhook",
            action="store_true",
            help="only print the secret address for senders that cannot sign",
        ),
        argument(
            "--print-access-rules",
            action="store_true",
            help="only print the access rules that an application credential needs in the cloud of "
            "--os-cloud, as openstack application credential create --access-rules takes them",
        ),
    )

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run, check, or print; see the class. Raises CommandFailed."""
        # Imported here, because every other command would wait for these imports.
        from mistral_failover.cloud.errors import CloudError
        from mistral_failover.errors import CodedError

        self._grave = False
        try:
            options = _options(parsed_args, getattr(self.app, "options", None))
            if parsed_args.print_webhook:
                return self._print_webhook(options)
            if parsed_args.print_access_rules:
                return self._print_access_rules(options)
            if parsed_args.check:
                self._found = _findings(options)
                return int(super().run(parsed_args)) or int(self._grave)
            if parsed_args.ui_orders and parsed_args.ui is None:
                raise connection.CommandFailed("--ui-orders needs --ui", "Give both. [USAGE]")
            _serve(options, parsed_args.ui, orders=parsed_args.ui_orders)
        except (CodedError, CloudError) as error:
            raise connection.CommandFailed(
                f"{error.message.rstrip('.')}. {error.remedy} [{error.code}]"
            ) from None
        return 0

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Format the findings."""
        self._grave = any(each.grave for each in self._found)
        rows = [
            ["error" if each.grave else "warning", each.code, each.message, each.remedy]
            for each in self._found
        ]
        if not rows and for_people(parsed_args):
            self.app.stderr.write("No problems found.\n")
        return ["kind", "code", "message", "remedy"], rows

    def _print_access_rules(self, options: Any) -> int:
        """Print the rules, by the catalog of the cloud."""
        from mistral_failover.cloud import access_rules
        from mistral_failover.server import credential

        if options.cloud is None:
            raise connection.CommandFailed(
                "no cloud is configured", "Give --os-cloud with an entry of clouds.yaml. [NO_CLOUD]"
            )
        cloud, _ = credential.cloud_of(options.cloud)
        rules = [rule.document() for rule in access_rules.needed(cloud)]
        self.app.stdout.write(json.dumps(rules, indent=1) + "\n")
        return 0

    def _print_webhook(self, options: Any) -> int:
        """Print the address of the server that runs with this state, else of one with these
        options."""
        from mistral_failover.server import receiver, secret, state_dir

        facts = state_dir.running(options.state_dir)
        file = Path(facts.get("secret_file") or options.secret)
        scheme = "http" if options.tls is None else "https"
        address = facts.get("webhook") or f"{scheme}://{options.webhook}{receiver.PATH}"
        self.app.stdout.write(f"{address}/{secret.read(file).token}\n")
        host = urlsplit(address).hostname or ""
        if ipaddress.ip_address(host).is_unspecified:
            self.app.stderr.write(
                f"It listens on every address of this machine: replace {host} by the one that the "
                "senders reach.\n"
            )
        return 0


def _parsed(parse: Callable[[str], Any], text: str, expected: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}") from None


def _options(given: argparse.Namespace, program: Any) -> Any:
    from mistral_failover.server import options

    settings = options.read_settings(given.config_file) if given.config_file else {}
    settings |= options.from_environment(os.environ)
    if given.database_file:
        settings["database"] = options.read_url(given.database_file)
    if given.database:
        settings["database"] = given.database
    cloud = getattr(program, "os_cloud", None)
    if cloud is None and "OS_AUTH_URL" in os.environ:
        cloud = "envvars"  # openstacksdk's name for an entry made of the variables
    folder = given.state_dir or getattr(program, "server_state", None) or connection.state_dir()
    folder = folder.absolute()
    return options.Options(
        state_dir=folder,
        cloud=cloud,
        listen=given.listen,
        names=tuple(given.api_name),
        webhook=given.webhook_listen,
        secret_file=given.webhook_secret_file,
        tls_cert=given.tls_cert,
        tls_key=given.tls_key,
        metrics_port=given.metrics_port,
        metrics_of_all_projects=given.metrics_of_all_projects,
        workflows=tuple(path.absolute() for path in given.workflows),
        emulated=given.emulated,
        settings=settings,
    )


def _findings(options: Any) -> list[Any]:
    from mistral_failover.server import checks

    return checks.run_checks(options)


def _serve(options: Any, ui: tuple[str, int] | None, *, orders: bool) -> None:
    """Serve until a signal, and end the process, whatever actions are still running: Python would
    wait for their threads. The ledger records their work."""
    began = time.monotonic()
    _progress("Starting: this takes some seconds, on a busy machine up to a minute.")
    from mistral_failover.agent.systemd import log_to_stderr
    from mistral_failover.server import service

    os.umask(0o077)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    for handler in logging.getLogger().handlers[:]:
        logging.getLogger().removeHandler(handler)
    log_to_stderr()
    with contextlib.ExitStack() as stack:
        page = _page(options, ui, orders=orders)

        def ready(found: Any) -> None:
            _progress(f"Ready after {time.monotonic() - began:.0f} s.")
            _tell(options, found)
            stack.enter_context(page)

        service.serve(options, ready, ended, _progress)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _progress(sentence: str) -> None:
    """Tell what the server does before it is ready, which takes some seconds."""
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


def _page(
    options: Any, ui: tuple[str, int] | None, *, orders: bool
) -> contextlib.AbstractContextManager[None]:
    """Return a context manager that serves the web page. Its command uses the other commands, so it
    is not imported here, but found as every command is. Raises CommandFailed."""
    if ui is None:
        return contextlib.nullcontext()
    (point,) = entry_points(group="failover.cli", name="ui")
    page: contextlib.AbstractContextManager[None] = point.load().beside(
        options.state_dir, sys.stdout, ui, read_only=not orders
    )
    return page


def _tell(options: Any, found: Any) -> None:
    lines = [
        f"Mistral: {found.url}",
        f"Token:   in {found.token_file}",
        f"Alarms:  {found.webhook}",
    ]
    if found.metrics:
        lines.append(f"Metrics: {found.metrics}")
    if found.emulator:
        lines += _how_to_go_on(options.state_dir)
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _how_to_go_on(folder: Path) -> list[str]:
    from mistral_failover.server import emulated

    given = f" --server-state {shlex.quote(str(folder))}"
    where = "" if folder == connection.state_dir().absolute() else given
    name = emulated.GROUP
    commands = (
        f"group create {shlex.quote(str(folder / emulated.GROUP_FILE))}",
        f"emulator break {name} db_a",
        f"watch {name}",
        f"status {name}",
    )
    return [
        "An emulated cloud with the stack payments runs beside it. In another terminal:",
        *(f"  failover --embedded{where} {command}" for command in commands),
        "OpenStack's own commands work there, too: openstack server list, after",
        f"  export OS_CLIENT_CONFIG_FILE={shlex.quote(str(folder / emulated.CLOUDS_FILE))} "
        f"OS_CLOUD={emulated.CLOUD}",
    ]
