# SPDX-License-Identifier: Apache-2.0
"""An agent's identity, and the keys derived from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from mistral_failover.agent import wire


@dataclass(frozen=True, slots=True)
class Identity:
    """One server of one group, with the key of either its member or its group.

    ``member``: its name; None if the key is the group's, which is valid for every member.
    """

    group_id: str
    group: str
    server_id: str
    member: str | None = None
    member_key: bytes | None = field(default=None, repr=False)
    group_key: bytes | None = field(default=None, repr=False)

    @property
    def address(self) -> wire.Address:
        """The address that names the queues, for which the member's name is not needed."""
        return wire.Address(self.group_id, self.group, self.member or "", self.server_id)

    def key_of(self, member: str) -> bytes:
        """Return a member's key. Raises ValueError if the key belongs to another member."""
        if self.member not in (None, member):
            raise ValueError("another member")
        if self.member_key is not None:
            return self.member_key
        assert self.group_key is not None
        return wire.member_key(self.group_key, member)

    def key_for(self, kind: wire.Kind, member: str, epoch: int) -> bytes:
        """Return the key that signs a kind of message to or from this server. Raises ValueError for
        another member."""
        return wire.message_key(kind, self.key_of(member), self.server_id, epoch)
