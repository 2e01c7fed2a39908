# SPDX-License-Identifier: Apache-2.0
"""Release work when Mistral's executor stops.

An executor that gets SIGTERM calls ``ExecutorServer.stop`` and ends its process at once, whatever
its threads are doing. Mistral has no hook for that (read in Mistral 23 and in cotyledon 2.2), so
this wraps its methods ``start`` and ``stop``.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_SERVER = "mistral.executors.executor_server"
SECONDS = 15.0
"""Seconds that a stop waits for running work: a little longer than one call may take."""
_TOLD = 0.5  # seconds for the results of the actions to reach the engine
_mutex = threading.Lock()
_done = False


def hand_back_with_the_executor(
    hand_back: Callable[[float], bool], reopen: Callable[[], None]
) -> None:
    """Make the executor of this process, if it is one, take no more messages when it stops and then
    call ``hand_back`` with a limit in seconds, and call ``reopen`` when it starts again. Call this
    once per process.

    Messages end first: the engine answers what is handed back with the next action, and one that
    this executor still took would be lost with its process.
    """
    global _done
    module = sys.modules.get(_SERVER)
    if _done or module is None:
        return
    with _mutex:
        if _done:
            return
        _done = True
        server: Any = module.ExecutorServer
        start, stop = server.start, server.stop

        @functools.wraps(stop)
        def stopped(self: Any, *args: Any, **options: Any) -> Any:
            try:
                if self._rpc_server:
                    self._rpc_server.stop()
            finally:  # also without a broker: otherwise others wait for the leases
                if hand_back(SECONDS):
                    time.sleep(_TOLD)
            return stop(self, *args, **options)

        @functools.wraps(start)
        def started(self: Any, *args: Any, **options: Any) -> Any:
            reopen()
            return start(self, *args, **options)

        server.stop, server.start = stopped, started
