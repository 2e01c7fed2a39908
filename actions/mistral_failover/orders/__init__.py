# SPDX-License-Identifier: Apache-2.0
"""Orders of operators: failover, switchover, failback, rollback, replacement, removal."""
