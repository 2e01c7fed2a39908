# SPDX-License-Identifier: Apache-2.0
"""Blocking clients of a Ceph cluster.

A client that has an RBD image open watches it, and the owner of the exclusive lock is named by the
lock. A client on the cluster's blocklist (``address:port/nonce``) can write nothing any more: the
map of the OSDs carries the list, and the command returns after the map has changed. Every command
has a limit of its own and is killed at it, because by default none ends.

A watch outlives its client by half a minute (``osd_client_watch_timeout``). A client that is alive
answers a notification of the image within milliseconds, a dead one never: see `Cluster.is_silent`.

Each entry has an end, and ``osd blocklist add`` does not move the end of an entry that is there
(OSDMap::apply_incremental inserts; seen with Ceph 16.2.15: the command prints the new end, the map
keeps the old one). Operators add entries by hand, and librbd when it breaks a lock: both for an
hour by default. After the end the client may write again. We saw a client that was frozen while it
was blocked write on without a watch, as soon as its entry was gone. So an entry counts only with
its end.

To give a client another end, its entry must be removed and added again, and both cannot go into
one map. Nothing covers the client in between without harm to others: besides the client itself,
Ceph matches only a whole address or a range of them, and another guest of the host that is refused
once does not recover. So there is a gap of about a second: see `Cluster.renew`.
"""

from __future__ import annotations

import errno
import itertools
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from oslo_utils import timeutils

from mistral_failover import private_files
from mistral_failover.model.documents import load_json
from mistral_failover.resources.fence import programs
from mistral_failover.resources.fence.agents import Going, always
from mistral_failover.resources.fence.devices import Ceph
from mistral_failover.resources.fence.power import ClaimLost, TimeOver, Unproven

LOG = logging.getLogger(__name__)

FOREVER = 10 * 365 * 86_400
"""Seconds for which a client is blocked: an operator lifts it after the host was off."""
ENOUGH = 365 * 86_400
"""Seconds that an entry must last from now on to be a proof: it must not end before the host was
off, whenever that will be. Differences of clocks do not matter here."""
SILENT, SILENT_STILL = 3, 1
"""Seconds for which a client does not answer until it counts as silent, and once more at the next
look."""
_CLIENT = re.compile(r"(?:v[12]:)?(?P<ip>[0-9.]+|\[[0-9A-Fa-f:.]+\]):[0-9]+/[0-9]+\Z")
_ENOENT = 2
_LEAST = 1.0  # seconds for a command that may leave a client without an entry

Permit = Callable[[float], float]
"""Returns for how many seconds a command of at most so many may run; raises if none may start."""


class NoImage(Unproven):
    """A volume is in none of the cluster's pools."""


@dataclass(frozen=True)
class Image:
    """An RBD image, and the clients that have it open or own its lock."""

    name: str
    clients: frozenset[str]


class Cluster:
    """The cluster of the operator's file."""

    def __init__(self, ceph: Ceph, permit: Permit, going: Going = always) -> None:
        """``going``: see `agents.Going`."""
        self._ceph = ceph
        self._permit = permit
        self._going = going

    def image_of(self, volume_id: str, name_id: str) -> Image:
        """Return the image of a volume with its clients. ``name_id``: the id in the image's name.
        Raises NoImage if it is in none of the pools, Unproven if it is in several."""
        return self._only(f"volume-{name_id}", f"volume {volume_id}")

    def made_by_nova(self, disk: str) -> list[Image]:
        """Return the images that Nova has made for a server, with their clients: its system's
        ``disk``, and what belongs to it. Raises as `image_of`, by its system's disk."""
        images = [self._only(disk, f"disk {disk}")]
        beside = itertools.chain([".swap"], (f".eph{number}" for number in itertools.count()))
        for suffix in beside:
            try:
                images.append(self._only(f"{disk}{suffix}", f"disk {disk}{suffix}"))
            except NoImage:
                if suffix != ".swap":
                    break
        return images

    def _only(self, name: str, what: str) -> Image:
        found = [
            image
            for pool in self._ceph.pools
            if (image := self._image(f"{pool}/{name}")) is not None
        ]
        if not found:
            raise NoImage(f"{what} is in none of the operator's pools")
        if len(found) > 1:
            raise Unproven(f"{what} is in several pools")
        return found[0]

    def watchers(self, image: str) -> frozenset[str]:
        """Return the clients that watch an image now. Raises Unproven."""
        return frozenset(self._watchers(image) or ())

    def is_silent(self, image: str, seconds: int) -> bool:
        """Return whether exactly one client watches an image, and does not answer for so many
        seconds. False also if it cannot be asked: that needs ``rados`` for the Python that runs
        ``ceph``, which Ceph's packages install. Raises what the permit raises.

        It is no proof that the client is dead: one that hangs does not answer either.
        """
        try:
            before = self._watchers(image)
            if before is None or len(before) != 1 or self._answer(image, seconds):
                return False
            return self._watchers(image) == before
        except (ClaimLost, TimeOver):
            raise
        except Unproven as error:
            LOG.info("The clients of %s are not asked: %s", image, error.detail)
            return False

    def _answer(self, image: str, seconds: int) -> bool:
        """Return whether every client that watches an image answers a notification within so many
        seconds. Raises Unproven if they cannot be asked."""
        path = programs.find(self._ceph.ceph)
        python = programs.interpreter(path) if path is not None else None
        if python is None:
            raise Unproven(f"{self._ceph.ceph} is no program in Python")
        self._check_keyring()
        script = Path(__file__).with_name("ceph_notify.py").read_text(encoding="utf-8")
        pool, _, name = image.partition("/")
        login = (self._ceph.conf or "", self._ceph.name or "", self._ceph.keyring or "")
        limit = self._permit(self._ceph.limit)
        if limit <= seconds + 1:
            raise Unproven("too little time is left")
        words = [*python, "-c", script, *login, pool, name, str(seconds)]
        ended = programs.run(words, limit=limit, going=self._going)
        if ended.code == 0:
            return True
        if ended.code == errno.ETIMEDOUT:
            return False
        raise Unproven(ended.words)

    def block(self, client: str) -> None:
        """Put a client on the blocklist. Raises Unproven."""
        if not _CLIENT.match(client):
            raise Unproven("a client of the volume has no usable address", f"client {client!r}")
        self._run(
            "ceph", ["osd", "blocklist", "add", client, str(FOREVER)], "the blocklist refused"
        )

    def renew(self, client: str) -> None:
        """Replace the entry of a client by one that lasts. Raises Unproven.

        In the gap between, about a second, the client may write. So do it only while nothing relies
        on the entry, or if the entry would end first. Another process may have replaced it, and
        relies on it already: so look right before. Neither a lost lease nor the end of the time
        comes into the gap: time for all commands is granted before the first one. If this process
        dies in the gap, the client is not blocked: record it before.
        """
        seconds = self._permit(4 * self._ceph.limit) / 4
        if seconds < _LEAST:
            raise Unproven("too little time is left to replace an entry of the blocklist")
        brief = Cluster(self._ceph, lambda limit: min(limit, seconds))
        left = brief.blocked().get(client)
        if left is not None and left >= ENOUGH:
            return
        if left is not None:
            brief.unblock(client)
        try:
            brief.block(client)
        except Unproven:
            LOG.warning("Ceph does not block client %s for a moment; trying again", client)
            brief.block(client)

    def unblock(self, client: str) -> None:
        """Take a client off the blocklist, if it is there. Raises Unproven."""
        remove = ["osd", "blocklist", "rm", client]
        self._run("ceph", remove, "the blocklist could not be changed", _ENOENT)

    def blocked(self) -> dict[str, float]:
        """Return the clients on the blocklist, by the map of the OSDs, each with the seconds until
        its entry ends. Raises Unproven.

        ``osd blocklist ls`` would be shorter, but Ceph 16.2.15 prints two JSON documents, the
        second one for ranges of addresses.
        """
        shown = self._json("ceph", ["osd", "dump", "--format", "json"], "the blocklist")
        listed = shown.get("blocklist") if isinstance(shown, dict) else None
        if not isinstance(listed, dict):
            raise Unproven("the blocklist was not readable")
        now = time.time()
        try:
            ends = {str(client): timeutils.parse_isotime(end) for client, end in listed.items()}
        except (TypeError, ValueError):
            raise Unproven("the ends of the blocklist's entries were not readable") from None
        return {client: end.timestamp() - now for client, end in ends.items()}

    def check(self) -> None:
        """Read the blocklist and every pool's list of images, to see that it can be done. Raises
        Unproven."""
        self.blocked()
        for pool in self._ceph.pools:
            self._json("rbd", ["status", f"{pool}/volume-none", "--format", "json"], pool, _ENOENT)

    def _image(self, name: str) -> Image | None:
        watchers = self._watchers(name)
        if watchers is None:
            return None
        locks = self._json("rbd", ["lock", "ls", name, "--format", "json"], "the volume's locks")
        rows = locks if isinstance(locks, list) else list((locks or {}).values())
        owners = {str(row["address"]) for row in rows if isinstance(row, dict) and "address" in row}
        return Image(name, frozenset(watchers) | owners)

    def _watchers(self, name: str) -> list[str] | None:
        """Return the addresses of an image's watchers; None if there is no such image."""
        status = self._json("rbd", ["status", name, "--format", "json"], "the watchers", _ENOENT)
        if status is None:
            return None
        rows = status.get("watchers") if isinstance(status, dict) else None
        if isinstance(rows, dict):  # releases before 13 show a mapping
            rows = list(rows.values())
        if not isinstance(rows, list) or not all(
            isinstance(row, dict) and isinstance(row.get("address"), str) for row in rows
        ):
            raise Unproven("the watchers of the volume were not readable")
        return [row["address"] for row in rows]

    def _json(
        self, program: str, arguments: Sequence[str], what: str, absent: int | None = None
    ) -> Any:
        """Return a command's answer; None if it ended with the exit code ``absent``."""
        text = self._run(program, arguments, f"{what} could not be read", absent)
        if text is None:
            return None
        try:
            return load_json(text, what)
        except ValueError:
            raise Unproven(f"{what} could not be read", f"{program}: not JSON") from None

    def _check_keyring(self) -> None:
        """Refuse a keyring that other users may read or change; the programs read it themselves.
        Raises Unproven."""
        if self._ceph.keyring is None:
            return
        try:
            with private_files.opened(Path(self._ceph.keyring), installed=True):
                pass
        except private_files.NotPrivate as error:
            detail = f"ceph.keyring: {error.message}. {error.remedy}"
        except OSError as error:
            detail = f"ceph.keyring: {self._ceph.keyring} cannot be read: {error.strerror}"
        else:
            return
        raise Unproven("the keyring of Ceph cannot be used", detail)

    def _run(
        self, program: str, arguments: Sequence[str], failed: str, absent: int | None = None
    ) -> str | None:
        path = programs.find(self._ceph.ceph if program == "ceph" else self._ceph.rbd)
        if path is None:
            raise Unproven(f"{program} is not installed on the executor")
        self._check_keyring()
        limit = self._permit(self._ceph.limit)
        seconds = str(max(1, int(limit)))
        options = [
            *(("--conf", self._ceph.conf) if self._ceph.conf else ()),
            *(("--name", self._ceph.name) if self._ceph.name else ()),
            *(("--keyring", self._ceph.keyring) if self._ceph.keyring else ()),
            *(
                ("--connect-timeout", seconds)
                if program == "ceph"
                else (f"--rados_mon_op_timeout={seconds}", f"--rados_osd_op_timeout={seconds}")
            ),
        ]
        ended = programs.run([path, *options, *arguments], limit=limit, going=self._going)
        if ended.code == 0:
            return ended.stdout
        if absent is not None and ended.code == absent:
            return None
        end = ended.why if ended.code is None else f"exit code {ended.code}"
        LOG.warning("%s %s: %s", program, " ".join(arguments[:3]), ended.words)
        raise Unproven(f"{failed} ({program}: {end})", f"{program}: {ended.words}")


def address_of(client: str) -> str:
    """Return the address of a client without port and nonce, in its shortest form; empty if it has
    none."""
    found = _CLIENT.match(client)
    try:
        return str(ip_address(found["ip"].strip("[]"))) if found else ""
    except ValueError:
        return ""
