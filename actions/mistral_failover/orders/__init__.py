# SPDX-License-Identifier: Apache-2.0
"""What people order: failover, switchover, failback, rollback, replacement, removal."""
