# SPDX-License-Identifier: Apache-2.0
"""How commands reach Mistral: everything that they do are actions and workflows there, with the
rights of whoever calls."""

from __future__ import annotations

import argparse
import os
from typing import Any

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


def run_action(parsed_args: argparse.Namespace, name: str, **inputs: Any) -> Any:
    """Run one of the project's actions; returns its answer.

    Raises CommandFailed with what went wrong and what helps.
    """
    # Here, because every other command would wait for these imports.
    from keystoneauth1.exceptions import ClientException
    from openstack.exceptions import SDKException

    from mistral_failover.embedded.client import MistralClient
    from mistral_failover.embedded.errors import EmbeddedError

    try:
        if parsed_args.mistral_url:
            client = MistralClient(parsed_args.mistral_url)
        else:
            url, headers = _in_the_cloud(parsed_args.os_cloud)
            client = MistralClient(url, headers=headers)
        return client.run_action(name, {k: v for k, v in inputs.items() if v is not None})
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
