# SPDX-License-Identifier: Apache-2.0
"""Whether Keystone still honours a token, and how services refuse one that it does not.

An issued token stays when its trust is deleted or its user disabled; only the answers change. They
are those of Keystone 30 and of keystonemiddleware, which answers 401 if Keystone does not know the
token, and 503 if Keystone refuses it for another reason.
"""

from mistral_failover.lab.emulator.state import CloudState, Token

UNKNOWN = "The request you have made requires authentication."
NOT_AUTHORIZED = "You are not authorized to perform the requested action."
AWAY = "The server is currently unavailable. Please try again at a later time."

Answer = tuple[int, str]
"""An HTTP status and its message."""


def trust_is_gone(state: CloudState, token: Token) -> bool:
    """Whether the trust by which the token was got was deleted."""
    return token.trust_id is not None and token.trust_id not in state.trusts


def is_valid(state: CloudState, token: Token) -> bool:
    """Whether Keystone lets the token's bearer do anything."""
    return not trust_is_gone(state, token) and state.users[token.user_id].enabled


def by_keystone(state: CloudState, token: Token) -> Answer:
    """Keystone's answer to a token that it does not honour."""
    if trust_is_gone(state, token):
        return 404, f"Could not find trust: {token.trust_id}."
    return (403, NOT_AUTHORIZED) if token.trust_id else (401, UNKNOWN)


def by_service(state: CloudState, token: Token) -> Answer:
    """The answer of any other service to such a token."""
    if trust_is_gone(state, token) or not token.trust_id:
        return 401, UNKNOWN
    return 503, AWAY
