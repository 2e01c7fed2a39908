# SPDX-License-Identifier: Apache-2.0
"""Which services the operations of the shipped types ask to do something."""

from __future__ import annotations

from collections.abc import Mapping

SERVICES_OF: Mapping[str, tuple[str, ...]] = {
    "activation": (),  # the members' agents
    "alarm": ("Aodh",),
    "dns_record": ("Designate",),
    "fence": ("Nova",),
    "floating_ip": ("Neutron",),
    "group_member": ("Heat",),
    "load_balancer_member": ("Octavia",),
    "port": ("Neutron", "Nova"),
    "stack_parameters": ("Heat",),
    "stack_template": ("Heat",),
    "virtual_ip": ("Neutron",),
    "volume_attachment": ("Cinder", "Nova"),
}
"""By type. A type of another package has no budget: what its operations ask is unknown."""
