# SPDX-License-Identifier: Apache-2.0
"""Setting the address of a process's own Mistral for its actions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oslo_config import cfg

from mistral_failover import settings as configuration
from mistral_failover.embedded.server import EmbeddedMistral


@contextmanager
def known_to_actions(mistral: EmbeddedMistral) -> Iterator[None]:
    """Set ``[failover] mistral_url`` of this process to a running Mistral's address, unless it is
    set: without a token there is no catalog in which an action could find it."""
    if configuration.load().mistral_url:
        yield
        return
    cfg.CONF.set_override("mistral_url", mistral.url, group=configuration.GROUP)
    try:
        yield
    finally:
        cfg.CONF.clear_override("mistral_url", group=configuration.GROUP)
