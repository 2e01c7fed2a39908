# SPDX-License-Identifier: Apache-2.0
"""What is known of a group: its snapshot, its members, their agents."""
