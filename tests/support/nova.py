# SPDX-License-Identifier: Apache-2.0
"""Nova as openstacksdk's proxy, for tests."""

from __future__ import annotations

from openstack import connection
from openstack.compute.v2._proxy import Proxy as Compute

from mistral_failover.cloud.clients import Cloud


def nova_of(cloud: Cloud) -> Compute:
    """Return Nova with the rights of a cloud. It raises as the cloud's session does."""
    session = cloud.session
    return connection.Connection(session=session, region_name=session.region_name).compute
