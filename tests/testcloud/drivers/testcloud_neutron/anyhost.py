# SPDX-License-Identifier: Apache-2.0
"""An ML2 mechanism driver that binds every port on every host: no agent, no data plane."""

import os
from typing import Any

import neutron.db.models.port_forwarding  # noqa: F401  # maps Port.port_forwardings, see initialize
from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api
from sqlalchemy import orm


class AnyHost(api.MechanismDriver):  # type: ignore[misc]  # Neutron has no type information
    """Takes the first segment of a port's network and calls the port active."""

    def initialize(self) -> None:
        """Map all models now.

        Without the port_forwarding service plugin nobody does, and `GET /v2.0/ports`, and with it
        Nova's `GET /servers`, is a 500 until something else happens to.
        """
        orm.configure_mappers()
        # With a real hypervisor: Nova makes a tap device, and the host puts it into its bridge.
        machines = os.environ.get("FAILOVER_CLOUD_MACHINES") == "yes"
        self._kind = portbindings.VIF_TYPE_TAP if machines else portbindings.VIF_TYPE_OTHER

    @property
    def connectivity(self) -> Any:
        """Layer 2, as far as anybody can see."""
        return portbindings.CONNECTIVITY_L2

    def bind_port(self, context: Any) -> None:
        """Bind the port to its network's first segment."""
        for segment in context.segments_to_bind:
            context.set_binding(
                segment[api.ID],
                self._kind,
                {portbindings.CAP_PORT_FILTER: False},
                status=constants.PORT_STATUS_ACTIVE,
            )
            return
