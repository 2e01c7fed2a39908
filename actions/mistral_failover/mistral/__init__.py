# SPDX-License-Identifier: Apache-2.0
"""Mistral itself: its API, executions, workflows of users."""
