# SPDX-License-Identifier: Apache-2.0
"""What the test cloud's Neutron needs to live without agents."""
