# SPDX-License-Identifier: Apache-2.0
"""Checks whether everything is there that a failover needs; one module a subject."""
