# SPDX-License-Identifier: Apache-2.0
"""``python -m support.walk FILE START,... ARGUMENT...``: run ``failover`` with these arguments, and
write which functions of the package are called, in the order of their first calls.

FILE gets a JSON object: for each START, a function such as ``alarms/alarm.py:read``, the calls from
its first one after that of the START before it. All threads count."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from mistral_failover.cli.main import main
from support.pages import MODULES

NAMES = {str(path): name for name, path in MODULES.items()}


class Walk:
    """What was called since the latest start that was reached."""

    def __init__(self, starts: list[str]) -> None:
        self.calls: dict[str, list[str]] = {}
        self._starts = starts
        self._known: set[CodeType] = set()
        self._now: list[str] = []
        self._lock = threading.Lock()

    def called(self, frame: FrameType, event: str, _: Any) -> None:
        """See `sys.setprofile`."""
        code = frame.f_code
        if event != "call" or code in self._known or code.co_filename not in NAMES:
            return
        name = f"{NAMES[code.co_filename]}:{code.co_qualname}"
        with self._lock:
            if name in self._starts[:1]:
                self._starts.pop(0)
                self._known = set()
                self._now = self.calls[name] = []
            self._known.add(code)
            self._now.append(name)


if __name__ == "__main__":
    walk = Walk(sys.argv[2].split(","))
    threading.setprofile(walk.called)
    sys.setprofile(walk.called)
    try:
        status = main(sys.argv[3:])
    finally:
        sys.setprofile(None)
        Path(sys.argv[1]).write_text(json.dumps(walk.calls), encoding="utf-8")
    sys.exit(status)
