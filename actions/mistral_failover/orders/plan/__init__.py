# SPDX-License-Identifier: Apache-2.0
"""Plans: what an order would do, without doing it."""
