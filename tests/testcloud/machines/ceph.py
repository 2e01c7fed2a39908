# SPDX-License-Identifier: Apache-2.0
"""A whole Ceph in one folder: one monitor, one OSD on a file, one manager, with cephx.

Cinder needs the manager: without it ``ceph df`` never answers.
"""

from __future__ import annotations

import configparser
import json
import uuid
from functools import partial

from testcloud import service_processes
from testcloud.machines import places
from testcloud.machines.commands import run
from testcloud.processes import Processes
from testcloud.serving import until
from testcloud.settings import Settings, write_private

USERS = {
    # What Cinder may do, and QEMU on behalf of Nova.
    "cinder": ("mon", "profile rbd", "osd", f"profile rbd pool={places.POOL}"),
    # What a fence needs, and nothing else: docs/fencing.md.
    "fence": (
        *("mon", 'allow command "osd blocklist", allow r'),
        *("osd", f"profile rbd-read-only pool={places.POOL}"),
    ),
}


def key(settings: Settings, user: str) -> str:
    """The key of a user."""
    read = configparser.ConfigParser()
    read.read(places.keyring(settings, user))
    return read[f"client.{user}"]["key"]


def ceph(settings: Settings, *words: str, user: str = "admin", given: str | None = None) -> str:
    """Run a command of Ceph's; it ends within 30 s.

    :raises CloudError: COMMAND_FAILED.
    """
    conf = str(places.ceph_conf(settings))
    return run(
        *("ceph", "-c", conf, "--id", user, "--connect-timeout", "20", *words),
        *(("-i", "-") if given is not None else ()),
        given=given,
        limit=30,
    )


def watchers(settings: Settings, volume: str) -> list[str]:
    """The clients that have a volume open, each as ``ADDRESS:PORT/NONCE``.

    :raises CloudError: COMMAND_FAILED.
    """
    said = run(
        *("rbd", "-c", str(places.ceph_conf(settings)), "--id", "fence", "status"),
        *(f"{places.POOL}/volume-{volume}", "--format", "json"),
        limit=30,
    )
    return sorted(watcher["address"] for watcher in json.loads(said)["watchers"])


def blocked(settings: Settings) -> list[str]:
    """The clients that Ceph refuses, each as ``ADDRESS:PORT/NONCE``.

    :raises CloudError: COMMAND_FAILED.
    """
    said = json.loads(ceph(settings, "osd", "dump", "--format", "json", user="fence"))
    return sorted(said["blocklist"])


def unblock(settings: Settings, address: str) -> None:
    """Accept the clients of an address again: only after its host was off.

    :raises CloudError: COMMAND_FAILED.
    """
    for client in blocked(settings):
        if client.startswith(f"{address}:"):
            ceph(settings, "osd", "blocklist", "rm", client)


def start(settings: Settings) -> None:
    """Start it and wait until it serves; the first time it is made.

    :raises CloudError: PROCESS_DIED, NOT_READY, COMMAND_FAILED.
    """
    first = not places.keyring(settings, "fence").exists()
    if first:
        _prepare(settings)
    service_processes.start(settings, "ceph-mon")
    if first:
        _add_osd(settings)
        _add_user(settings, "mgr.x", "mon", "allow profile mgr", "osd", "allow *")
    for name in ("ceph-osd", "ceph-mgr"):
        service_processes.start(settings, name)
    if first:
        ceph(settings, "osd", "pool", "create", places.POOL, "8")
        ceph(settings, "osd", "pool", "application", "enable", places.POOL, "rbd")
        for user, rights in USERS.items():
            _add_user(settings, f"client.{user}", *rights)
    until(Processes(settings), "ceph-osd", partial(_serves, settings))


def _serves(settings: Settings) -> bool:
    """Whether the OSD is up and the manager answers: it counts the pools' bytes."""
    state = json.loads(ceph(settings, "status", "--format", "json"))
    return state["osdmap"]["num_up_osds"] == 1 and bool(state["mgrmap"]["available"])


def _prepare(settings: Settings) -> None:
    here = places.ceph(settings)
    for name in ("run", "mgr", "osd.0"):
        (here / name).mkdir(parents=True, exist_ok=True)
    conf, fsid = places.ceph_conf(settings), str(uuid.uuid4())
    conf.write_text(
        _CONFIGURATION.format(
            fsid=fsid, address=places.CEPH_ADDRESS, port=places.CEPH_PORT, here=here
        )
    )
    admin, own, monmap = places.keyring(settings, "admin"), here / "mon.a.keyring", here / "monmap"
    everything = ("--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *")
    run("ceph-authtool", "-C", admin, "-g", "-n", "client.admin", *everything)
    run("ceph-authtool", "-C", own, "-g", "-n", "mon.", "--cap", "mon", "allow *")
    run("ceph-authtool", own, "--import-keyring", admin)
    addresses = f"[v2:{places.CEPH_ADDRESS}:{places.CEPH_PORT}]"
    run("monmaptool", "--create", "--clobber", "--fsid", fsid, "--addv", "a", addresses, monmap)
    made = ("--mkfs", "-i", "a", "--monmap", monmap, "--keyring", own)
    run("ceph-mon", "-c", conf, *made)


def _add_osd(settings: Settings) -> None:
    own, identity = places.ceph(settings) / "osd.0.keyring", str(uuid.uuid4())
    secret = run("ceph-authtool", "--gen-print-key").strip()
    ceph(settings, "osd", "new", identity, "0", given=json.dumps({"cephx_secret": secret}))
    write_private(own, f"[osd.0]\n\tkey = {secret}\n")
    conf = places.ceph_conf(settings)
    run("ceph-osd", "-c", conf, "-i", "0", "--mkfs", "--osd-uuid", identity)


def _add_user(settings: Settings, name: str, *rights: str) -> None:
    text = ceph(settings, "auth", "get-or-create", name, *rights)
    write_private(places.ceph(settings) / f"{name}.keyring", text)


_CONFIGURATION = """\
[global]
fsid = {fsid}
mon host = [v2:{address}:{port}]
public addr = {address}
keyring = {here}/$type.$id.keyring
run dir = {here}/run
admin socket = {here}/run/$cluster-$name.asok
log file =
log to stderr = true
err to stderr = true
osd pool default size = 1
osd pool default min size = 1
mon allow pool size one = true
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon warn on pool no redundancy = false
auth allow insecure global id reclaim = false
mon cluster log file = /dev/null
[client]
keyring = {here}/$type.$id.keyring
# By default the address of the control plane: a client on a host has another one.
public addr =
admin socket =
log to stderr = false
[mon]
mon data = {here}/mon
mon initial members = a
mon data avail warn = 5
mon data avail crit = 1
# Seconds that changes of a map are collected: a fence waits for them.
paxos propose interval = 0.05
paxos min wait = 0.01
[mgr]
mgr data = {here}/mgr
[osd]
osd data = {here}/osd.$id
osd objectstore = bluestore
bluestore block size = 8589934592
bluestore fsck on mount = false
bluestore cache autotune = false
bluestore cache size = 67108864
osd memory target = 939524096
osd op num shards = 1
osd op num threads per shard = 1
osd class default list = *
osd class load list = *
"""
