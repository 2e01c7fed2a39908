# SPDX-License-Identifier: Apache-2.0
"""Showing progress sentence by sentence: colours and a spinner on a terminal, plain lines
elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TextIO

from mistral_failover.model.text import clean

if TYPE_CHECKING:
    from rich.status import Status

_STYLES = {
    "fault": "bold red",
    "failed": "red",
    "complete": "bold green",
    "admitted": "bold yellow",
    "started": "dim",
    "traversal": "bold",
    "steal": "yellow",
    "note": "yellow",
}


class Progress:
    """A context manager; call it with seconds (or None), a kind and a sentence. ``first``: what a
    terminal shows before the first sentence."""

    def __init__(self, stream: TextIO, first: str = "starting Mistral and the cloud") -> None:
        # Imported here, because every command would wait for rich, also those that show none.
        from rich.console import Console

        self._first = first
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._status: Status | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status(self._first)
            self._status.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._status is not None:
            self._status.stop()

    @property
    def on_terminal(self) -> bool:
        """Return whether there is a line for :meth:`doing`."""
        return self._status is not None

    def doing(self, words: str) -> None:
        """Say beside the spinner what is in progress; nothing for an empty text."""
        from rich.text import Text

        if self._status is not None and words:
            self._status.update(Text(clean(words)))

    def __call__(self, seconds: float | None, kind: str, sentence: str) -> None:
        """Show one sentence."""
        sentence = clean(sentence)
        when = " " * 9 if seconds is None else f"{seconds:7.2f} s"
        self._console.print(f"{when}  {sentence}", style=_STYLES.get(kind), markup=False)
        self.doing(sentence)
