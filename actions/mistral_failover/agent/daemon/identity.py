# SPDX-License-Identifier: Apache-2.0
"""Who an agent is, and the keys that follow from what its node knows."""

from __future__ import annotations

from dataclasses import dataclass, field

from mistral_failover.agent import wire


@dataclass(frozen=True, slots=True)
class Identity:
    """One server of one group, with the key of its member or of its group: exactly one of them.

    ``member``: its name; None where only the group's key is known, which says it of every member.
    """

    group_id: str
    group: str
    server_id: str
    member: str | None = None
    member_key: bytes | None = field(default=None, repr=False)
    group_key: bytes | None = field(default=None, repr=False)

    @property
    def address(self) -> wire.Address:
        """Names the queues; for that the member's name is not needed."""
        return wire.Address(self.group_id, self.group, self.member or "", self.server_id)

    def key_of(self, member: str) -> bytes:
        """A member's key. Raises ValueError where that is another's."""
        if self.member not in (None, member):
            raise ValueError("another member")
        if self.member_key is not None:
            return self.member_key
        assert self.group_key is not None
        return wire.member_key(self.group_key, member)

    def key_for(self, kind: wire.Kind, member: str, epoch: int) -> bytes:
        """The key that a kind of message to or from this server is signed with. Raises ValueError
        where the member is another."""
        return wire.message_key(kind, self.key_of(member), self.server_id, epoch)
