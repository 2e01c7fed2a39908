# SPDX-License-Identifier: Apache-2.0
"""A whole failover on one machine: its scene, its audit, its critical path."""
