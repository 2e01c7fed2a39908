# SPDX-License-Identifier: Apache-2.0
"""A whole failover on one machine: a scene to play it in, its audit, its critical path."""
