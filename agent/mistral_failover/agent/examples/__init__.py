# SPDX-License-Identifier: Apache-2.0
"""What a guest installs beside the agent: its unit, and the programs of an example."""
