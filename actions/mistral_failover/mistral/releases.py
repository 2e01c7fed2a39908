# SPDX-License-Identifier: Apache-2.0
"""The releases of Mistral that this package is tested with. ``make test-releases`` reads the table,
and so does docs/install.md."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version


@dataclass(frozen=True)
class Release:
    """A release of OpenStack, and what was played with it.

    :ivar openstack: its name, as in ``2025.1``.
    :ivar mistral: the version of its Mistral that is tested.
    :ivar python: the version of Python with which it is tested.
    :ivar embedded: ``failover server`` and ``failover drill`` can run this Mistral themselves.
    """

    openstack: str
    mistral: str
    python: str
    embedded: bool = False

    @property
    def series(self) -> int:
        """The first number of its Mistral's version, which no other release has."""
        return int(self.mistral.partition(".")[0])


RELEASES = (
    Release("2024.2", "19.1.1", "3.11"),
    Release("2025.1", "20.2.0", "3.12"),
    Release("2025.2", "21.0.0", "3.12"),
    Release("2026.1", "22.0.0", "3.13"),
    Release("2026.2", "23.0.0", "3.13", embedded=True),
)


def installed() -> str:
    """Return the version of the Mistral in this Python's environment. Raises
    PackageNotFoundError."""
    return version("mistral")


def release_of(mistral: str) -> Release | None:
    """Return the release of a version of Mistral; None if it is not in the table."""
    return next((each for each in RELEASES if str(each.series) == mistral.partition(".")[0]), None)


def tested() -> str:
    """Return what the table spans, for a sentence."""
    first, last = RELEASES[0], RELEASES[-1]
    openstack = f"OpenStack {first.openstack} to {last.openstack}"
    return f"Mistral {first.series} to {last.series} ({openstack})"


def embeddable() -> str:
    """Return the Mistral that runs within ``failover server``, for a sentence."""
    return " or ".join(f"Mistral {each.series}" for each in RELEASES if each.embedded)
