# SPDX-License-Identifier: Apache-2.0
"""Ask the clients that watch an RBD image whether they are there; run by Ceph's own Python.

Words: the configuration, the user and the keyring (each may be empty), the pool, the image, and for
how many seconds to wait. Exit codes: 0: each client answered; 110: at least one did not; everything
else: they were not asked.

An empty notification is the oldest one that librbd and the kernel know: "the header has changed". A
client reads the header again, which changes nothing, and answers at once. It needs the right to
read only. ``rados notify`` of the command line cannot send an empty one.
"""

from __future__ import annotations

import errno
import sys


def main(conf: str, name: str, keyring: str, pool: str, image: str, seconds: str) -> int:
    """Ask them; return the exit code."""
    import rados  # type: ignore[import-not-found]  # belongs to Ceph, not to this package

    limits = {
        "client_mount_timeout": "5",
        "rados_mon_op_timeout": "5",
        "rados_osd_op_timeout": str(int(seconds) + 5),
    }
    options = {**limits, **({"keyring": keyring} if keyring else {})}
    with rados.Rados(conffile=conf or "", name=name or "client.admin", conf=options) as cluster:
        pools = cluster.open_ioctx(pool)
        # The length of the id, in four bytes, and the id.
        identity = pools.read(f"rbd_id.{image}")[4:].decode("ascii")
        try:
            pools.notify(f"rbd_header.{identity}", "", int(seconds) * 1000)
        except rados.Error as error:
            # Not TimedOut: some releases raise another class for it.
            if abs(error.errno or 0) != errno.ETIMEDOUT:
                raise
            return errno.ETIMEDOUT
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
