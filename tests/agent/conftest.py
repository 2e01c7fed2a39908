# SPDX-License-Identifier: Apache-2.0
"""An emulated cloud, whose guests obey commands; channels over brokers that are none."""

from support.channels import channel_to, key_file, memory, to, url
from support.emulated import cloud, connect, emulated, emulator, pair

__all__ = [
    "channel_to",
    "cloud",
    "connect",
    "emulated",
    "emulator",
    "key_file",
    "memory",
    "pair",
    "to",
    "url",
]
