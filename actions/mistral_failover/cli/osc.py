# SPDX-License-Identifier: Apache-2.0
"""Plugin of the openstack client: ``openstack failover ...`` with its options and its clouds.yaml.

The commands are those of the program ``failover``, the entry points ``openstack.failover.v1``.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from mistral_failover.cli import connection

if TYPE_CHECKING:
    from mistral_failover.mistral.client import MistralClient

API_NAME = "failover"
API_VERSION_OPTION = "os_failover_api_version"
API_VERSIONS = ("1",)
DEFAULT_API_VERSION = "1"


def make_client(instance: Any) -> MistralClient:
    """Return Mistral's API for the client manager ``instance``, over its session."""
    return connection.in_the_cloud(instance.sdk_connection.config)


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the options of the program that this plugin brings."""
    parser.add_argument(
        "--os-failover-api-version",
        metavar="<failover-api-version>",
        default=os.environ.get("OS_FAILOVER_API_VERSION", DEFAULT_API_VERSION),
        help=f"version of the failover commands, default {DEFAULT_API_VERSION} "
        "(Env: OS_FAILOVER_API_VERSION)",
    )
    connection.add_namespace(parser)
    return parser
