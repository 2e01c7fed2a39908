# SPDX-License-Identifier: Apache-2.0
"""Telling the actions of a process where its own Mistral is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oslo_config import cfg

from mistral_failover import settings as configuration
from mistral_failover.embedded.server import EmbeddedMistral


@contextmanager
def known_to_actions(mistral: EmbeddedMistral) -> Iterator[None]:
    """Make a running Mistral's address ``[failover] mistral_url`` of this process meanwhile, unless
    that is set: without a token there is no catalog that an action could find it in."""
    if configuration.load().mistral_url:
        yield
        return
    cfg.CONF.set_override("mistral_url", mistral.url, group=configuration.GROUP)
    try:
        yield
    finally:
        cfg.CONF.clear_override("mistral_url", group=configuration.GROUP)
