# SPDX-License-Identifier: Apache-2.0
"""``failover server``: the embedded Mistral for clouds that offer none, and a door for alarms."""
