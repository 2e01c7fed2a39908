# SPDX-License-Identifier: Apache-2.0
"""An HTTP cloud on loopback with latency, faults and an audit, driven by the real clients.

It deliberately omits some behaviour:

- Its services forget a revoked token at once, and notice a dead host at once (a rig's ``kill``
  opens the gap with latencies).
- ``os-instance-actions`` knows only deletions and detaches.
- Each update of a stack gets a later second than the one before. Real updates within one second do
  not.
- No newer update cancels an older one unless a test asks for it.
- Every update passes a group's definition to all members. A server that could not be made is
  removed at the next attempt.
- Neutron has ports, floating IPs and their changes; its networks and routers are only made by
  stacks, and its security groups have no rules and keep nothing out.
- Octavia has load balancers, pools and members; no listeners, health monitors or policies.
- Aodh has alarms that never fire by themselves, and no history.
- Designate has zones and recordsets; no transfers, shares or imports, and no DNS server.
- Disks are called ``vdX``, as by libvirt (the test cloud's fake hypervisor calls them ``sdX``).
"""
