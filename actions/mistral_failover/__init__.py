# SPDX-License-Identifier: Apache-2.0
"""High availability for applications on OpenStack, as Mistral workflows and actions."""
