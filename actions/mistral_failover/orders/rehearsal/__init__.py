# SPDX-License-Identifier: Apache-2.0
"""Rehearsals: what is planned, how one begins and ends, what it came to."""
