# SPDX-License-Identifier: Apache-2.0
"""What the actions of one process share, and what one request may do."""
