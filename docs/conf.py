# SPDX-License-Identifier: Apache-2.0
"""How Sphinx builds the documentation: make docs."""

import sys
from importlib.metadata import version as _version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "mistral-failover"
author = "the authors of mistral-failover"
version = release = _version("mistral-failover")
extensions = ["myst_parser", "cliff.sphinxext", "from_code"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "High availability for applications on OpenStack"}
html_show_copyright = False
myst_heading_anchors = 4
autoprogram_cliff_application = "failover"
nitpicky = True
