# SPDX-License-Identifier: Apache-2.0
"""Rehearsals: what is planned, and how one begins and ends."""
