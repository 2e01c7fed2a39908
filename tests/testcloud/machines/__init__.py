# SPDX-License-Identifier: Apache-2.0
"""Real guests on hosts that can lose power: docs/machines.md."""
