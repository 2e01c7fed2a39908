# SPDX-License-Identifier: Apache-2.0
"""The connection of commands to Mistral: all they do are actions and workflows there, with the
caller's rights.

As ``failover ...`` a command finds Mistral by options of the program, by the variables of the same
meaning, or by clouds.yaml; as ``openstack failover ...`` by the session of that client.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mistral_failover.model.documents import load_json
from mistral_failover.model.text import clean

if TYPE_CHECKING:
    from mistral_failover.mistral.client import MistralClient

URL_VARIABLE = "FAILOVER_MISTRAL_URL"
TOKEN_VARIABLE = "FAILOVER_MISTRAL_TOKEN_FILE"  # noqa: S105 - its name
EMBEDDED_VARIABLE = "FAILOVER_EMBEDDED"
STATE_VARIABLE = "FAILOVER_STATE_DIR"
NAMESPACE_VARIABLE = "FAILOVER_NAMESPACE"
SERVER_FILE = "server.json"
"""In the state directory of a running ``failover server``: ``{"url", "token_file", "pid"}``."""
AWAY = frozenset({"MISTRAL_UNREACHABLE", "STILL_RUNNING"})
"""The codes of a Mistral that does not answer now, but may do so later."""
_WORKFLOW_SERVICE = "workflow"  # openstacksdk knows its aliases, workflowv2 among them
_WITH_FAILOVER = "Give --mistral-url, --embedded, or --os-cloud with an entry of clouds.yaml."
_WITH_OPENSTACK = (
    "Give --os-cloud with a cloud whose catalog has Mistral. For a 'failover server', use the "
    "program failover: failover --embedded ..."
)
_SLOW = 90.0  # seconds for one request; an action runs while its request waits


class CommandFailed(Exception):
    """A command fails with this message and exit code 1; ``remedy`` is told apart where known.
    ``problems``: of a group file that was refused, as of a `MistralError`."""

    code = "COMMAND_FAILED"
    problems: Sequence[Mapping[str, str]] = ()

    def __init__(self, wrong: object, remedy: str = "") -> None:
        self.wrong = clean(str(wrong))
        self.remedy = clean(remedy)
        super().__init__(f"{with_full_stop(self.wrong)} {self.remedy}" if remedy else self.wrong)


class CommandLineWrong(CommandFailed):
    """The command line itself is wrong, which is found without a request: exit code 2."""


def with_full_stop(sentence: object) -> str:
    """Return a sentence with its full stop; messages of other programs may have one already, and
    one that was cut ends with an ellipsis."""
    said = str(sentence).rstrip(".")
    return said if said[-1:] == "\u2026" else f"{said}."


def state_dir() -> Path:
    """Return where ``failover server`` keeps its state by default."""
    if given := os.environ.get(STATE_VARIABLE):
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "mistral-failover"


def add_options(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Where Mistral is, as options of the program, which a command must not have: cliff takes them
    wherever they stand. They are what ``argv`` says: the variables count where it says nothing.
    Of the many options with which OpenStack's clients authenticate only those of clouds.yaml are
    there unless ``argv`` uses others: they take most of a second to load."""
    group = parser.add_argument_group("Mistral")
    group.add_argument(
        "--mistral-url",
        metavar="URL",
        help=(
            "the API of a Mistral without authentication, ending in /v2, or unix:PATH (default "
            f"${URL_VARIABLE}); without it, Mistral's address comes from the cloud's catalog"
        ),
    )
    group.add_argument(
        "--mistral-token-file",
        type=Path,
        metavar="FILE",
        help=(
            "the file with the token of a 'failover server' at --mistral-url: api-token of its "
            f"state directory (default ${TOKEN_VARIABLE}, or the token in $OS_TOKEN)"
        ),
    )
    group.add_argument(
        "--embedded",
        action="store_true",
        help=(
            "use the Mistral of the 'failover server' on this machine; no credentials (default: "
            f"if ${EMBEDDED_VARIABLE} is 1)"
        ),
    )
    group.add_argument(
        "--server-state",
        type=Path,
        default=None,
        metavar="DIR",
        help=f"that server's state directory, its --state-dir (default ${STATE_VARIABLE}, or "
        "~/.local/state/mistral-failover)",
    )
    add_namespace(group)
    authenticating = _authenticating(argv)
    parser.set_defaults(authenticating=authenticating)
    if set(authenticating) - {"--os-cloud"}:
        from openstack import config

        config.OpenStackConfig().register_argparse_arguments(parser, list(argv))
        return
    group.add_argument(
        "--os-cloud",
        default=os.environ.get("OS_CLOUD"),
        metavar="NAME",
        help=(
            "the entry of clouds.yaml to authenticate with (default $OS_CLOUD, or the other OS_ "
            "variables); all other --os- options of OpenStack's clients work as well"
        ),
    )


def add_namespace(parser: Any) -> None:
    """Add the option for the Mistral namespace that holds the package's workflows."""
    parser.add_argument(
        "--workflow-namespace",
        default=os.environ.get(NAMESPACE_VARIABLE, ""),
        metavar="NAME",
        help=(
            f"the Mistral namespace with the package's workflows (default ${NAMESPACE_VARIABLE}, "
            "or the one without a name)"
        ),
    )


def namespace(app: Any) -> str:
    """Return the namespace with the package's workflows; empty: the one without a name."""
    options = getattr(app, "options", None)
    given = getattr(options, "workflow_namespace", None)
    return str(os.environ.get(NAMESPACE_VARIABLE, "") if given is None else given)


def _authenticating(argv: Sequence[str]) -> list[str]:
    """Return the options of OpenStack's clients among the words, which have defaults of their
    own."""
    names = [word.partition("=")[0] for word in argv]
    return list(dict.fromkeys(name for name in names if name.startswith("--os-")))


@contextlib.contextmanager
def mistral(app: Any) -> Iterator[MistralClient]:
    """Mistral's API for a command of ``app``, a cliff application; what goes wrong there is a
    failed command. An option of the program beats every variable. ``app`` None, or without options:
    by the environment alone."""
    # Imported here, because every other command would wait for these imports.
    from keystoneauth1.exceptions import ClientException
    from openstack.exceptions import SDKException

    from mistral_failover.mistral.client import MistralError

    try:
        yield _client(app)
    except MistralError as error:
        failed = CommandFailed(error.message, f"{error.remedy} [{error.code}]")
        failed.problems = error.problems
        raise failed from None
    except (ClientException, SDKException) as error:
        remedy = _WITH_OPENSTACK if _of_openstack(app) else _WITH_FAILOVER
        raise CommandFailed(error, f"{remedy} [NO_CLOUD]") from None


def _client(app: Any) -> MistralClient:
    from mistral_failover.mistral.client import MistralClient

    options = getattr(app, "options", None)
    if _of_openstack(app):
        client: MistralClient = app.client_manager.failover  # made by cli.osc
        return client
    url, embedded = _where(options)
    if embedded:
        return of_server(server_facts(app), timeout=_SLOW)
    if url:
        return MistralClient(url, token=_given_token(options), timeout=_SLOW)
    return in_the_cloud(_region(app))


def _of_openstack(app: Any) -> bool:
    """Return whether a command runs as ``openstack failover ...``."""
    return getattr(app, "client_manager", None) is not None


def _region(app: Any) -> Any:
    """Return the entry of clouds.yaml, or what the variables say. Raises SDKException."""
    if _of_openstack(app):
        return app.client_manager.sdk_connection.config
    from openstack import config

    return config.OpenStackConfig().get_one(argparse=getattr(app, "options", None))


def server_used(app: Any) -> dict[str, Any] | None:
    """Return what the ``failover server`` announces that the commands of ``app`` use; None if they
    use another Mistral. Raises CommandFailed."""
    url, embedded = _where(getattr(app, "options", None))
    if not _of_openstack(app) and (embedded or url):
        return server_facts(app) if embedded else None
    return _facts_of(_region(app))


def _facts_of(region: Any) -> dict[str, Any] | None:
    """Return what the ``failover server`` announces that an entry of clouds.yaml names, None if it
    names none. Raises CommandFailed."""
    from mistral_failover.lab.emulator.client import STATE_KEY

    state = region.config.get(STATE_KEY)
    return _facts_in(Path(state)) if state else None


def of_server(facts: dict[str, Any], timeout: float = 60) -> MistralClient:
    """Return a client of the ``failover server`` that announces these facts. Raises
    CommandFailed."""
    from mistral_failover.mistral import in_process
    from mistral_failover.mistral.client import MistralClient

    if facts.get("pid") == os.getpid():  # the web page beside a server
        return MistralClient(in_process.URL, timeout=timeout)
    token = _token_in(Path(facts["token_file"])) if "token_file" in facts else None
    return MistralClient(str(facts["url"]), token=token, timeout=timeout)


def _given_token(options: Any) -> str | None:
    """Return the token of the Mistral at --mistral-url, None if there is none. Raises
    CommandFailed."""
    file = getattr(options, "mistral_token_file", None) or os.environ.get(TOKEN_VARIABLE)
    return _token_in(Path(file)) if file else os.environ.get("OS_TOKEN")


def _token_in(file: Path) -> str:
    from mistral_failover import private_files

    try:
        return private_files.read(file, for_root=True).decode("ascii").strip()
    except private_files.NotPrivate as error:
        raise CommandFailed(error.message, f"{error.remedy} [TOKEN_NOT_PRIVATE]") from None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not a token"
        raise CommandFailed(
            f"The token of Mistral in {file} cannot be read: {why}",
            "Run the command as the user of 'failover server', or copy the token into a file of "
            "your own, mode 0600, for --mistral-token-file. [TOKEN_UNREADABLE]",
        ) from None


def _where(options: Any) -> tuple[str | None, bool]:
    """Return the URL of Mistral's API, and whether it is the embedded Mistral; neither: in the
    cloud."""
    if _said(options):
        return getattr(options, "mistral_url", None), bool(getattr(options, "embedded", False))
    return os.environ.get(URL_VARIABLE), os.environ.get(EMBEDDED_VARIABLE, "") not in ("", "0")


def _said(options: Any) -> list[str]:
    """Return the options on the command line that choose the Mistral, and the first of those with
    which OpenStack's clients authenticate."""
    given = {"--mistral-url": "mistral_url", "--embedded": "embedded"}
    said = [name for name, key in given.items() if getattr(options, key, None)]
    return said + getattr(options, "authenticating", [])[:1]


def contradiction(options: Any) -> str:
    """Return the error in the program's options; empty if they choose one Mistral."""
    said = _said(options)
    return f"{' and '.join(said)} name different Mistrals: use only one of them" if said[1:] else ""


def server_facts(app: Any) -> dict[str, Any]:
    """Return what the ``failover server`` of this machine announces. Raises CommandFailed."""
    return _facts_in(getattr(getattr(app, "options", None), "server_state", None) or state_dir())


def _facts_in(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = load_json((folder / SERVER_FILE).read_bytes(), "file")
        found["url"]
    except (OSError, ValueError, KeyError, TypeError):
        raise CommandFailed(
            f"No 'failover server' runs with its state in {folder}",
            "Start one (failover server --help), or give its state directory with --server-state. "
            "[NO_SERVER]",
        ) from None
    return found


def in_the_cloud(region: Any) -> MistralClient:
    """Mistral in the catalog of a cloud, with a token that is renewed as the session renews it; or
    that of the ``failover server`` which the cloud's entry names."""
    from mistral_failover.cloud.certificates import bundle
    from mistral_failover.mistral.client import MistralClient

    if facts := _facts_of(region):
        return of_server(facts, timeout=_SLOW)
    session = region.get_session()
    if session.verify is True:  # the entry names no file of certificates
        session.verify = bundle()
    url = region.get_session_client(_WORKFLOW_SERVICE).get_endpoint()
    if not url:
        raise CommandFailed("The cloud's catalog has no workflow service. [NO_ENDPOINT]")
    return MistralClient(str(url), session=session, project=session.get_project_id, timeout=_SLOW)
