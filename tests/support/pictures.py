# SPDX-License-Identifier: Apache-2.0
"""The pictures of the documentation: which there are, and where a test leaves them."""

from __future__ import annotations

from support.pages import ROOT

FOLDER = ROOT / "build" / "ui" / "docs"
"""Where ``make test-ui`` leaves them; ``make pictures`` copies them to ``docs``."""
WIDTH = 960
"""Of each picture, in pixels."""
HEIGHTS = {"ui-group": 720, "ui-failover": 730, "ui-stuck": 590, "ui-rehearsal": 760}
"""In pixels, by name."""
LARGEST = 100_000
"""Bytes of a picture."""
