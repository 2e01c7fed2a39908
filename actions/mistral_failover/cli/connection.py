# SPDX-License-Identifier: Apache-2.0
"""How commands reach Mistral: everything that they do are actions and workflows there, with the
rights of whoever calls."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mistral_failover.embedded.client import MistralClient

URL_VARIABLE = "FAILOVER_MISTRAL_URL"
_WORKFLOW_SERVICE = "workflow"  # openstacksdk knows its aliases, workflowv2 among them


class CommandFailed(Exception):
    """What a command says before it ends with exit code 1."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where Mistral is."""
    group = parser.add_argument_group("Mistral")
    group.add_argument(
        "--mistral-url",
        default=os.environ.get(URL_VARIABLE),
        metavar="URL",
        help="the API of a Mistral without authentication, ending in /v2 "
        f"(default ${URL_VARIABLE}); without it the cloud's catalog says where Mistral is",
    )
    group.add_argument(
        "--os-cloud",
        default=os.environ.get("OS_CLOUD"),
        metavar="NAME",
        help="the entry of clouds.yaml to authenticate with (default $OS_CLOUD, or the other OS_ "
        "variables)",
    )


def run_action(
    parsed_args: argparse.Namespace, name: str, *, save_result: bool = True, **inputs: Any
) -> Any:
    """Run one of the project's actions; returns its answer. ``save_result``: whether Mistral may
    write the answer down.

    Raises CommandFailed with what went wrong and what helps.
    """
    with _mistral(parsed_args) as client:
        return client.run_action(name, _given(inputs), save_result=save_result)


def run_workflow(
    parsed_args: argparse.Namespace, name: str, *, wait: float, **inputs: Any
) -> dict[str, Any]:
    """Start one of the project's workflows and follow it for ``wait`` seconds; returns its
    execution, as Mistral has it then.

    Raises CommandFailed with what went wrong and what helps.
    """
    from mistral_failover.embedded.errors import EmbeddedError

    with _mistral(parsed_args) as client:
        started = client.start(name, _given(inputs), description="by the command line")
        if not wait:
            return dict(started)
        try:
            return dict(client.wait(started["id"], wait))
        except EmbeddedError as error:
            if error.code != "STILL_RUNNING":
                raise CommandFailed(
                    f"{name} was started as execution {started['id']}, which could not be "
                    f"followed: {error.message}. Look at that execution. [{error.code}]"
                ) from None
            return dict(client.execution(started["id"]))


def _given(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if value is not None}


@contextlib.contextmanager
def _mistral(parsed_args: argparse.Namespace) -> Iterator[MistralClient]:
    """Mistral's API; what goes wrong there is a failed command."""
    # Here, because every other command would wait for these imports.
    from keystoneauth1.exceptions import ClientException
    from openstack.exceptions import SDKException

    from mistral_failover.embedded.client import MistralClient
    from mistral_failover.embedded.errors import EmbeddedError

    try:
        if parsed_args.mistral_url:
            yield MistralClient(parsed_args.mistral_url)
        else:
            url, headers = _in_the_cloud(parsed_args.os_cloud)
            yield MistralClient(url, headers=headers)
    except EmbeddedError as error:
        raise CommandFailed(f"{error.message}. {error.remedy} [{error.code}]") from None
    except (ClientException, SDKException) as error:
        raise CommandFailed(
            f"{error}. Give --mistral-url, or --os-cloud with an entry of clouds.yaml. [NO_CLOUD]"
        ) from None


def _in_the_cloud(name: str | None) -> tuple[str, dict[str, str]]:
    """Mistral's address in the catalog, and the headers that authenticate."""
    from openstack import config

    region = config.OpenStackConfig().get_one(cloud=name)
    session = region.get_session()
    url = region.get_session_client(_WORKFLOW_SERVICE).get_endpoint()
    if not url:
        raise CommandFailed("The cloud's catalog has no workflow service. [NO_ENDPOINT]")
    return str(url), dict(session.get_auth_headers() or {})
