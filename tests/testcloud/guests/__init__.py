# SPDX-License-Identifier: Apache-2.0
"""Guests of real servers: the emulator's guests, told by Nova and Cinder what is true of them."""
