# SPDX-License-Identifier: Apache-2.0
"""The executors' side of the command channel."""
