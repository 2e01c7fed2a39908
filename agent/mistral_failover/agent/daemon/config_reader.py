# SPDX-License-Identifier: Apache-2.0
"""Reading a mapping key by key, so that every fault names its place and a remedy."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, overload

from mistral_failover import private_files

_NEEDED: Any = object()
_NUMBER = (int, float)


class ConfigError(Exception):
    """A fault in the agent's file or in one that it names.

    ``field`` is its path, as in ``commands.pg-start.limit``. ``str()`` is one line, without any
    value of the file.
    """

    code = "AGENT_CONFIG"

    def __init__(self, field: str, message: str, remedy: str) -> None:
        self.field = field
        self.message = message
        self.remedy = remedy
        super().__init__(f"{field}: {message}. {remedy}")


class Section:
    """A mapping with known keys. ``path`` is its place in the file."""

    def __init__(self, path: str, content: Any, known: Iterable[str]) -> None:
        """Raises `ConfigError` if it is no mapping or has an unknown key."""
        self._path = path
        if not isinstance(content, dict):
            raise ConfigError(path or "the file", "it is not a mapping", "Write key: value.")
        self._content: dict[Any, Any] = content
        for key in content:
            if key not in known:
                raise self._unknown_key(str(key), known)

    def wrong(self, key: str, message: str, remedy: str) -> ConfigError:
        """Return the fault of one key."""
        return ConfigError(self._at(key), message, remedy)

    def unknown(self, key: str, word: str, known: Iterable[str]) -> ConfigError:
        """Return the fault of a key that refers to an undefined name."""
        return self.wrong(key, f'"{word}" is unknown', _did_you_mean(word, known))

    def get(self, key: str, default: Any = _NEEDED) -> Any:
        """Return the unchecked value."""
        value = self._content.get(key, default)
        if value is _NEEDED:
            raise self.wrong(key, "it is missing", f"Add {key}.")
        return value

    def one_of(self, *keys: str) -> str:
        """Return the one of several keys that is given."""
        given = [key for key in keys if key in self._content]
        if len(given) != 1:
            what = "only one of them may be given" if given else "none of them is given"
            raise self.wrong(" | ".join(keys), what, f"Give one of {', '.join(keys)}.")
        return given[0]

    @overload
    def text(
        self, key: str, default: str = _NEEDED, pattern: re.Pattern[str] | None = None
    ) -> str: ...
    @overload
    def text(
        self, key: str, default: None, pattern: re.Pattern[str] | None = None
    ) -> str | None: ...
    def text(
        self, key: str, default: str | None = _NEEDED, pattern: re.Pattern[str] | None = None
    ) -> str | None:
        """Return a text that is not empty."""
        value = self.get(key, default)
        if value is None and default is None and key not in self._content:
            return None
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise self.wrong(key, "not a text", "Use a text, in quotes if it is a number.")
        if pattern is not None and not pattern.fullmatch(value):
            raise self.wrong(key, "not a name", "Remove slashes and control characters.")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "it is neither true nor false", "Use true or false.")
        return value

    def seconds(self, key: str, default: float, least: float, most: float) -> float:
        """Return a number of seconds within bounds."""
        value = self.get(key, default)
        if (
            not isinstance(value, _NUMBER)
            or isinstance(value, bool)
            or not math.isfinite(value)
            or not least <= value <= most
        ):
            raise self.wrong(
                key,
                ("it is not a number of seconds within the limits"),
                f"Use a number from {least:g} to {most:g}.",
            )
        return float(value)

    def percent(self, key: str, default: float) -> float:
        """Return a number from 1 to 100."""
        value = self.get(key, default)
        if not isinstance(value, _NUMBER) or isinstance(value, bool) or not 1 <= value <= 100:
            raise self.wrong(key, "it is not a percentage", "Use a number from 1 to 100.")
        return float(value)

    def words(self, key: str, default: tuple[str, ...] = _NEEDED) -> tuple[str, ...]:
        """A list of texts and numbers, as texts."""
        value = self.get(key, default)
        if not isinstance(value, (list, tuple)) or not all(map(_is_word, value)):
            raise self.wrong(
                key,
                "it is not a list of words",
                "Use a list of texts; put true, false and dates in quotes.",
            )
        return tuple(map(str, value))

    def texts(self, key: str, names: re.Pattern[str]) -> dict[str, str]:
        """Return a mapping of names to texts and numbers, as texts; empty if missing."""
        found = {}
        for name in self.names(key, names, default=True):
            value = self._content[key][name]
            if not _is_word(value):
                raise self.wrong(
                    f"{key}.{name}",
                    "not a text",
                    ("Use a text; put true, false and dates in quotes."),
                )
            found[name] = str(value)
        return found

    def names(self, key: str, pattern: re.Pattern[str], *, default: bool = False) -> list[str]:
        """The names that a mapping has. ``default``: it may be missing."""
        value = self.get(key, {} if default else _NEEDED)
        if not isinstance(value, dict):
            raise self.wrong(key, "not a mapping", "Use name: value.")
        for name in value:
            if not isinstance(name, str) or not pattern.fullmatch(name):
                raise self.wrong(
                    key, "one of its names is not valid", f"Names must match {pattern.pattern}."
                )
        return list(value)

    def section(self, key: str, name: str, known: Iterable[str]) -> Section:
        """Return the mapping behind a name of a mapping."""
        return Section(self._at(f"{key}.{name}"), self._content[key][name], known)

    def optional(self, key: str, known: Iterable[str]) -> Section:
        """Return the mapping of a key; an empty one if it is missing."""
        return Section(self._at(key), self.get(key, {}), known)

    def _at(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _unknown_key(self, key: str, known: Iterable[str]) -> ConfigError:
        shown = key if key.isprintable() and len(key) <= 64 else "a key"
        return self.wrong(shown, "the key is unknown", _did_you_mean(key, known))


def read_secret(section: Section, key: str, path: str) -> str:
    """Return the text of a file that only its owner may read, without surrounding white space.

    Raises `ConfigError` if the file is not readable, or readable by other users.
    """
    try:
        return private_files.read(Path(path)).decode("utf-8").strip()
    except private_files.NotPrivate as error:
        raise section.wrong(key, error.message, error.remedy) from None
    except OSError as error:
        raise section.wrong(
            key, f"the file cannot be read: {error.strerror}", f"Store the secret in {path}."
        ) from None
    except UnicodeDecodeError:
        raise section.wrong(key, "the file is not text", "Write it as UTF-8.") from None


def _is_word(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" not in value
    return isinstance(value, _NUMBER) and not isinstance(value, bool)


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    words = sorted(known)
    near = difflib.get_close_matches(word, words, n=1)
    hint = f'Did you mean "{near[0]}"? ' if near else ""
    return f"{hint}Known: {', '.join(words)}." if words else "None are defined."
