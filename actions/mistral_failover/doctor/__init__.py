# SPDX-License-Identifier: Apache-2.0
"""Check whether everything that a failover needs is there; one module per subject."""
