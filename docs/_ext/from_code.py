# SPDX-License-Identifier: Apache-2.0
"""Generate pages at each build, so that they cannot be wrong: the options of the configuration (by
oslo's own generator), the tables of the state store, the fault points, the metrics, what other
packages can add to, and copies of the pages outside of docs/ (README and examples)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from columns import TABLES, meaning
from oslo_config import generator
from sphinx.application import Sphinx

from mistral_failover.alarms.alarm import sources
from mistral_failover.fault_points import BROKER_POINTS, POINTS
from mistral_failover.metrics import families
from mistral_failover.mistral.releases import RELEASES
from mistral_failover.model.installed import installed
from mistral_failover.model.restarts import RESTARTS
from mistral_failover.model.rungs import rung_kinds
from mistral_failover.model.types import installed_types
from mistral_failover.model.verbs import verb_kinds
from mistral_failover.store import tables

FOLDER = "generated"
PREFIX = "failover_"
DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
OUTSIDE = {
    page: DOCS / FOLDER / page.relative_to(ROOT).with_name(f"{page.parent.name}.md")
    for page in (ROOT / "README.md", *sorted((ROOT / "examples").rglob("README.md")))
}
"""The copy of each page that is not in docs/."""
OUTSIDE[ROOT / "README.md"] = DOCS / FOLDER / "readme.md"
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def write(app: Sphinx) -> None:
    """Write the pages. Sphinx calls this before it looks for its sources."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    _written(folder / "failover.conf.sample", _sample(folder))
    _written(folder / "state.md", _state())
    _written(folder / "fault-points.md", _fault_points())
    _written(folder / "installed.md", _installed())
    _written(folder / "metrics.md", _metrics())
    _written(folder / "releases.inc", releases_table())
    for page, copy in OUTSIDE.items():
        _written(copy, relinked(page.read_text("utf-8"), page, copy))


def relink(app: Sphinx, name: str, source: list[str]) -> None:
    """Change the links of a page in docs/ so that they lead to the copies."""
    if not name.startswith(FOLDER):
        page = Path(app.env.doc2path(name))
        source[0] = relinked(source[0], page, page)


def relinked(text: str, page: Path, copy: Path) -> str:
    """Return a page's text with the links that its copy needs. A link to a folder without a page
    becomes plain text."""

    def link(found: re.Match[str]) -> str:
        said, path, anchor = found[1], found[2], found[3] or ""
        target = (page.parent / path).resolve()
        if target.is_dir():
            target /= "README.md"
            if target not in OUTSIDE:
                return said
        target = OUTSIDE.get(target, target)
        return f"[{said}]({os.path.relpath(target, copy.parent)}{anchor})"

    return _LINK.sub(link, text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the functions with Sphinx."""
    app.connect("builder-inited", write)
    app.connect("source-read", relink)
    return {"parallel_read_safe": True}


def _sample(folder: Path) -> str:
    file = folder / "sample.tmp"
    generator.main(["--namespace", "mistral_failover", "--output-file", str(file)])
    text = file.read_text("utf-8")
    file.unlink()
    return text


def _state() -> str:
    lines = ["# The state store's tables", "", " ".join((tables.__doc__ or "").split()), ""]
    for table in tables.metadata.sorted_tables:
        name = table.name.removeprefix(PREFIX)
        lines += [f"## {table.name}", "", TABLES[name], ""]
        lines += ["| column | type | holds |", "|---|---|---|"]
        for column in table.columns:
            json = isinstance(column.type, tables.PlainJson)
            kind = "JSON" if json else str(column.type).split("(")[0]
            length = getattr(column.type, "length", None)
            notes = [
                "**primary key**" if column.primary_key else "",
                meaning(name, column.name).replace("|", r"\|"),
                "may be null" if column.nullable else "",
            ]
            said = "; ".join(note for note in notes if note)
            lines.append(f"| `{column.name}` | {kind}{f' {length}' if length else ''} | {said} |")
        lines += ["", *_found_by(table)]
    return "\n".join(lines)


def _fault_points() -> str:
    lines = ["# Fault points", "", "Where [tests](../developing.md#faults) make something fail."]
    for title, points in (("Failovers", POINTS), ("Commands to agents", BROKER_POINTS)):
        lines += ["", f"## {title}", "", "| point | what is true there |", "|---|---|"]
        lines += [f"| `{name}` | {meaning} |" for name, meaning in points.items()]
    return "\n".join([*lines, ""])


def _installed() -> str:
    """Return the page of the registries that other packages can add to."""
    lines = ["# Verbs, rungs, resource types and alarm sources", ""]
    lines += ["What is installed. How to add to it: [developing](../developing.md#adding-things)."]
    lines += ["", "## Verbs", "", "| verb | action | inputs | what it may change |"]
    lines.append("|---|---|---|---|")
    for name, verb in verb_kinds().items():
        inputs = ", ".join(f"`{each}`" for each in verb.given)
        lines.append(f"| `{name}` | `{verb.action}` | {inputs} | {verb.changes} |")
    lines += ["", "## Rungs", "", "| kind | fields | limit | proof | if the host is dead |"]
    lines.append("|---|---|---|---|---|")
    for name, kind in rung_kinds().items():
        fields = ", ".join(f"`{field}`" for field in kind.fields)
        proof = kind.proof.format_map({field: f"`{field}`" for field in kind.fields})
        dead = "may prove it" if kind.for_dead_host else "proves nothing"
        lines.append(f"| `{name}` | {fields} | {kind.limit:g} s | {proof} | {dead} |")
    lines += [
        "",
        "## Ways to bring a lost member back",
        "",
        "| way | when it is taken |",
        "|---|---|",
    ]
    lines += [f"| `{name}` | {way.when} |" for name, way in installed(RESTARTS).items()]
    lines += ["", "## Resource types", "", "| type | description | properties |", "|---|---|---|"]
    for name, each in installed_types().items():
        properties = ", ".join(f"`{key}`" for key in each.schema["properties"])
        lines.append(f"| `{name}` | {each.description} | {properties} |")
    lines += ["", "## Alarm sources", "", "| kind | recognised by |", "|---|---|"]
    lines += [f"| `{kind}` | {source.shape} |" for kind, source in sources().items()]
    return "\n".join([*lines, ""])


def releases_table() -> str:
    """Return the table of install.md: the releases of Mistral with which the package is tested."""
    lines = ["| OpenStack | Mistral | Python | in its processes | `failover server` runs it |"]
    lines.append("|---|---|---|---|---|")
    for each in RELEASES:
        runs = "yes" if each.embedded else "no"
        lines.append(f"| {each.openstack} | {each.mistral} | {each.python} | yes | {runs} |")
    return "\n".join([*lines, ""])


def _metrics() -> str:
    """Return the page of the metrics, as Prometheus sees them."""
    lines = ["# Metrics", "", "How to collect them: [monitoring](../monitoring.md).", ""]
    lines += ["| name | kind | labels | meaning |", "|---|---|---|---|"]
    for each in (*families.FAMILIES.values(), *families.OWN):
        name = each.name + "_total" * (each.kind == "counter")
        labels = ", ".join(f"`{label}`" for label in each.labels)
        lines.append(f"| `{name}` | {each.kind} | {labels} | {each.help} |")
    return "\n".join([*lines, ""])


def _found_by(table: sa.Table) -> list[str]:
    """Return the lines about a table's unique constraints and indexes."""
    unique = [
        list(constraint.columns)
        for constraint in table.constraints
        if isinstance(constraint, sa.UniqueConstraint)
    ]
    indexes = [list(index.columns) for index in table.indexes]
    lines = [
        f"- {what}: " + ", ".join(f"`{column.name}`" for column in columns)
        for what, several in (("unique", unique), ("index", indexes))
        for columns in sorted(several, key=lambda found: [column.name for column in found])
    ]
    return [*lines, ""] if lines else []


def _written(file: Path, text: str) -> None:
    """Write a file if its text changed, because Sphinx compares the files' times."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists() or file.read_text("utf-8") != text:
        file.write_text(text, "utf-8")
