# SPDX-License-Identifier: Apache-2.0
"""A group's present state: its snapshot, its members, their agents."""
