# SPDX-License-Identifier: Apache-2.0
"""The agent on a server."""
