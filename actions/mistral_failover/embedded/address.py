# SPDX-License-Identifier: Apache-2.0
"""Setting the address of a process's own Mistral for its actions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oslo_config import cfg

from mistral_failover import settings as configuration
from mistral_failover.embedded.server import EmbeddedMistral
from mistral_failover.mistral import in_process


@contextmanager
def known_to_actions(mistral: EmbeddedMistral) -> Iterator[None]:
    """Set ``[failover] mistral_url`` of this process to its own Mistral, which runs, unless another
    one is set: without a token of the cloud there is no catalog in which an action could find it.

    The Mistral is stopped at the end. Only then is the setting undone: the last actions of its
    executor would otherwise find other settings, and with them a pool of workers that nothing has
    told to stop.
    """
    known = configuration.load()
    if known.mistral_token_file or known.mistral_url not in (None, mistral.url):
        yield
        return
    cfg.CONF.set_override("mistral_url", in_process.URL, group=configuration.GROUP)
    try:
        yield
    finally:
        mistral.stop()
        cfg.CONF.clear_override("mistral_url", group=configuration.GROUP)
