# SPDX-License-Identifier: Apache-2.0
"""What people read: status, history, goals, members, metrics."""
