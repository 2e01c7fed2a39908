# SPDX-License-Identifier: Apache-2.0
"""Fencing a member: the ladder and its rungs."""
