# SPDX-License-Identifier: Apache-2.0
"""Fencing a member: the ladder, and one module for each kind of rung."""
