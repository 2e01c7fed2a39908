# SPDX-License-Identifier: Apache-2.0
"""Carries out traversals, and continues what a crash left behind."""
