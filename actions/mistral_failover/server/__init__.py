# SPDX-License-Identifier: Apache-2.0
"""``failover server``: an embedded Mistral for clouds that have none, and a webhook for alarms."""
