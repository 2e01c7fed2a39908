# SPDX-License-Identifier: Apache-2.0
"""docs/glossary.md: its terms are used, and the words that the project no longer uses are not."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

from mistral_failover import workflows
from mistral_failover.model.verbs import verb_kinds
from mistral_failover.settings import list_opts
from support.pages import MODULES, PAGES, ROOT, page, without_blocks

sys.path.insert(0, str(ROOT / "docs" / "_ext"))
import from_code  # noqa: E402

GLOSSARY = page("glossary")
_INSTEAD = {
    "nobody, no one, somebody, someone": "the actor: no member, no operator, another worker",
    "whoever, whichever, whom": "the actor: a sender that, the member that",
    "lest": "so that ... not",
    "mend": "repair",
    "anew": "again",
    "lying, lies about": "stalled, left",
    "stands": "is, has the status",
    "hangs on": "is attached to",
    "sits on": "belongs to",
    "comes free": "is released",
    "walk": "traversal",
    "the pack": "the package",
    "rooms": "modules",
    "the house": "you, your",
    "works off, worked off, work off": "carries out",
    "goes on, go on, went on, going on": "continues, still runs",
    "under way": "running",
    "meanwhile": "in the meantime, while",
    "is told of, are told of, told of, tells of": "receives, reports, shows",
    "is told, are told, was told, were told": "receives, learns",
    "sees to it": "makes sure",
    "broken off": "left half done",
    "can not": "cannot",
}
"""The words that the project no longer uses, and what it writes in their place, because they mean
several things, or are unusual for what they mean."""
ABANDONED = [
    (word.strip(), successor) for words, successor in _INSTEAD.items() for word in words.split(",")
]
STILL_IN_MESSAGES = {"can not": 1}  # Nova's own text, which the emulated cloud repeats
"""How often the code's messages and help texts may still contain an abandoned word. Only lower a
number; remove it at 0."""


def terms() -> list[str]:
    """The terms of the glossary."""
    return [term for item in items() for term in re.findall(r"\*\*(.+?)\*\*", item)]


def items() -> list[str]:
    """The entries of the glossary, each in one line."""
    found = re.findall(r"^- (\*\*.*?)(?=^- |^#|\Z)", GLOSSARY, re.M | re.S)
    return [" ".join(each.split()) for each in found]


def prose(text: str) -> str:
    """A page without its blocks and literals, in one line."""
    return " ".join(re.sub(r"`[^`]*`", " ", without_blocks(text)).split())


def uses(word: str, text: str) -> Iterator[re.Match[str]]:
    """Where a text contains a word, whatever its case."""
    if word.lower() not in text.lower():  # most are in none, and the search takes long
        return iter(())
    return re.finditer(rf"(?<![\w-]){re.escape(word)}(?:s|ed|ing)?(?![\w-])", text, re.I)


def messages() -> Iterator[str]:
    """The texts that users read: literals with spaces that are no docstrings, the help of the
    commands, and the shipped workflows."""
    for path in MODULES.values():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docstrings = set()
        for node in ast.walk(tree):  # what is documented comes before its docstring
            if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr):
                docstrings.add(id(node.body[0].value))
            value = node.value if isinstance(node, ast.Constant) else None
            if isinstance(value, str) and " " in value and id(node) not in docstrings:
                yield value
    for point in entry_points(group="failover.cli"):
        yield point.load().__doc__ or ""
    for shipped in workflows.paths():
        yield Path(shipped).read_text(encoding="utf-8")


def test_every_term_is_used_on_another_page() -> None:
    others = " ".join(text for name, text in PAGES.items() if name != "docs/glossary.md")

    assert len(terms()) > 50
    assert [term for term in terms() if not any(uses(term, others))] == []


def test_every_term_has_one_meaning() -> None:
    assert [term for term, count in Counter(terms()).items() if count > 1] == []


def test_what_shows_a_term_exists() -> None:
    """Commands are checked with those of all pages."""
    sources = " ".join(path.read_text(encoding="utf-8") for path in MODULES.values())
    shipped = {
        name
        for path in workflows.paths()
        for name in re.findall(r"^(failover\.\w+):", Path(path).read_text(encoding="utf-8"), re.M)
    }
    shipped |= {option.name for _, options in list_opts() for option in options}
    shown = {
        name
        for item in items()
        for name in re.findall(r"`([^`]+)`", item)
        if not name.startswith("failover ")
    }
    words = {name.split(": ")[-1] for name in shown} - shipped

    words -= {f"--{name}" for verb in verb_kinds().values() for name in verb.given}
    assert sorted(w for w in words if not re.search(rf"[\"'_]{re.escape(w)}[\"']", sources)) == []


def test_no_page_contains_an_abandoned_word() -> None:
    pages = dict(PAGES)
    pages |= {"docs/generated/state.md": from_code._state()}
    found = [
        f"{name}: {word} ({successor})"
        for name, text in pages.items()
        for plain in [prose(text)]
        for word, successor in ABANDONED
        if any(uses(word, plain))
    ]

    assert len(ABANDONED) > 30
    assert found == []


def test_the_messages_of_the_code_contain_no_abandoned_words() -> None:
    texts = " \n".join(" ".join(text.split()) for text in messages())
    found = {word: count for word, _ in ABANDONED if (count := len(list(uses(word, texts))))}

    assert set(STILL_IN_MESSAGES) <= {word for word, _ in ABANDONED}
    assert {w: n for w, n in found.items() if n > STILL_IN_MESSAGES.get(w, 0)} == {}
