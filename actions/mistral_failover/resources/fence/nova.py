# SPDX-License-Identifier: Apache-2.0
"""The rungs ``stop`` and ``delete``: Nova's compute service reports that the servers are off."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mistral_failover.model.rungs import Rung, ServerAfter
from mistral_failover.resources.fence.rung import FenceAttempt, FenceRung

if TYPE_CHECKING:
    from mistral_failover.cloud.fields import Feature
    from mistral_failover.cloud.servers import Evidence


class _ByNova(FenceRung):
    """A rung for which every server of the member must be proven off."""

    @abstractmethod
    def prove_server(self, attempt: FenceAttempt, server: str, limit: float) -> Evidence:
        """Prove it of one server, within ``limit`` seconds."""

    def prove(self, attempt: FenceAttempt, rung: Rung) -> Evidence:
        """Return the proofs of all the member's servers, or the first that is missing."""
        from mistral_failover.cloud.servers import Evidence

        target = attempt.target
        if not target.servers:
            return Evidence(False, self.kind, f"no server of {target.member.name} is known")
        proofs = []
        for server in target.servers:
            evidence = self.prove_server(attempt, server, float(rung["limit"]))
            if not evidence.proven:
                return evidence
            proofs.append(evidence.observed)
        return Evidence(True, self.kind, " ".join(proofs))


class Stop(_ByNova):
    """Nova stops the servers."""

    proof = "Nova's compute service reports its server off"
    limit = 120.0
    server_after = ServerAfter.SHUTOFF

    def prove_server(self, attempt: FenceAttempt, server: str, limit: float) -> Evidence:
        """Stop it."""
        from mistral_failover.cloud import servers

        return servers.stop(attempt.tools.cloud, server, limit)


class Delete(_ByNova):
    """Nova deletes the servers."""

    proof = "the compute service's own record shows that its server is deleted"
    limit = 300.0
    deletes_server = True

    def features(self) -> Iterable[Feature]:
        """Require what shows that no data goes with a server, and that its guest is gone."""
        from mistral_failover.cloud.servers import DELETION

        return DELETION

    def prove_server(self, attempt: FenceAttempt, server: str, limit: float) -> Evidence:
        """Delete it, unless a disk that the stack has would go with it."""
        from mistral_failover.cloud import boot_disks, servers
        from mistral_failover.cloud.errors import CloudError

        cloud = attempt.tools.cloud
        try:
            stays = boot_disks.must_stay(cloud, attempt.operation["stack"], server)
        except CloudError:
            stays = True  # as long as Heat does not say whose it is
        return servers.delete_server(cloud, server, limit, root=stays)
