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
    """Set ``[failover] mistral_url`` and ``mistral_token_file`` of this process to those of a
    running Mistral, unless they are set: without a token of the cloud there is no catalog in which
    an action could find it.

    The Mistral that got them is stopped at the end. Only then are they unset: the last actions of
    its executor would otherwise find other settings, and with them a pool of workers that nothing
    has told to stop.
    """
    found = {"mistral_url": mistral.url, "mistral_token_file": str(mistral.token_file)}
    known = configuration.load()
    if known.mistral_token_file or known.mistral_url not in (None, mistral.url):
        yield
        return
    for name, value in found.items():
        cfg.CONF.set_override(name, value, group=configuration.GROUP)
    try:
        yield
    finally:
        mistral.stop()
        for name in found:
            cfg.CONF.clear_override(name, group=configuration.GROUP)
