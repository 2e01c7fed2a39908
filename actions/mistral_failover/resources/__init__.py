# SPDX-License-Identifier: Apache-2.0
"""The operations of the shipped resource types."""
