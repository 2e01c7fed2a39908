# SPDX-License-Identifier: Apache-2.0
"""Ceph's ``rados`` for Python, as far as a fence uses it, for the cluster of ``ceph_simulated``.

A client answers a notification at once. Modes: ``deaf``: none does; ``deaf once``: none does at the
first notification; ``no notifications``: they are refused.
"""

import errno
import fcntl
import json
import time
from pathlib import Path


class Error(Exception):
    def __init__(self, number, words):
        super().__init__(words)
        self.errno = number


class Rados:
    def __init__(self, conffile, name, conf):
        self.file = conffile

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False

    def open_ioctx(self, pool):
        return Pool(self.file, pool)


class Pool:
    def __init__(self, file, name):
        self.file, self.name = file, name

    def read(self, key):
        image = key.removeprefix("rbd_id.")
        return len(image).to_bytes(4, "little") + image.encode()

    def notify(self, key, message, milliseconds):
        image = f"{self.name}/{key.removeprefix('rbd_header.')}"
        with Path(self.file).open("r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            state = json.load(file)
            state["calls"].append(["rados", "notify", image, milliseconds])
            modes = state["modes"]
            deaf = "deaf" in modes or "deaf once" in modes
            if "deaf once" in modes:
                modes.remove("deaf once")
            file.seek(0)
            file.truncate()
            json.dump(state, file)
        assert message == "", "librbd answers no other one that it does not understand"
        if "no notifications" in modes:
            raise Error(errno.EACCES, "[errno 13] access denied for key AQBsecret==")
        if deaf and state["watchers"].get(image):
            time.sleep(milliseconds / 1000)
            raise Error(-errno.ETIMEDOUT, "[errno 110] timed out")
        return True
