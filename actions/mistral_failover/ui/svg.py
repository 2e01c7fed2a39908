# SPDX-License-Identifier: Apache-2.0
"""Make SVG from Python. Every text and every attribute is escaped in one place, `node`."""

from __future__ import annotations

from markupsafe import Markup, escape

from mistral_failover.model.text import clean


def node(tag: str, *content: str | Markup, **attributes: object) -> Markup:
    """Return an element. ``attributes``: their names with ``_`` in place of ``-``, and ``class_``
    for class; those that are None are left out. Content that is no Markup is text.

    There are no styles and no handlers: the page's Content-Security-Policy forbids them.
    """
    named = Markup("").join(
        Markup(' {}="{}"').format(name.rstrip("_").replace("_", "-"), _plain(value))
        for name, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(
        escape(each if isinstance(each, Markup) else clean(each)) for each in content
    )
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), named, inner)  # noqa: S704 - our own


def text(x: float, y: float, said: str, class_: str, **attributes: object) -> Markup:
    """Return a text."""
    return node("text", said, x=x, y=y, class_=class_, **attributes)


def shortened(said: str, letters: int) -> str:
    """Return a text of at most that many letters; the whole belongs into a `title`."""
    return said if len(said) <= letters else f"{said[: letters - 1]}…"


def title(said: str) -> Markup:
    """Return an element that browsers show as a tooltip, and screen readers read."""
    return node("title", said)


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return clean(str(value))
