# SPDX-License-Identifier: Apache-2.0
"""An emulated cloud, whose guests obey commands."""

from support.emulated import cloud, connect, emulated, emulator, pair

__all__ = ["cloud", "connect", "emulated", "emulator", "pair"]
