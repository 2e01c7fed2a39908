# SPDX-License-Identifier: Apache-2.0
"""Mask tokens and passwords in texts that are shown or logged."""

from __future__ import annotations

import re

# What oslo.utils hides, and what else a service may call so. An agent has no oslo.utils.
_NAMES = (
    *("password", "passwd", "passphrase", "secret", "sys_pswd"),
    *("admin_?pass", "new_pass", "api_?key", "auth_token"),
    *("encrypted_key", "fernetkey", "private_key", "sslkey", "migrationsshkey"),
    *("barbicansimplecryptokek", "designaterndckey", "heatauthencryptionkey", "keystonecredential"),
    *("octaviaheartbeatkey", "pacemakerremoteauthkey", "rabbitcookie", "swifthashsuffix"),
    *("ceph[a-z]*key", "cephclusterfsid", "configdrive"),
)
_HIDING = rf"(?:{'|'.join(_NAMES)})(?:_uuid|\d+)?"
_NAMED = rf"(?:{_HIDING}|token)"
_SECRETS = [
    (re.compile(r"gAAAA[\w\-=]{16,}"), "***"),  # a Fernet token
    (re.compile(r"eyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]{8,}"), "***"),  # a JWS token
    # Keystone's "Could not find token: <id>", headers, members of JSON and queries.
    (re.compile(r"(?i)(token(?:[_-]id)?[\"']?\s*[:=]\s*[\"']?)[\w\-.=]{16,}"), r"\1***"),
    # Keystone's "Could not find trust: <id>", members of JSON.
    (re.compile(r"(?i)(trust(?:[_-]id)?[\"']?\s*[:=]\s*[\"']?)[0-9a-f]{32}"), r"\1***"),
    (re.compile(r"(?i)(\bbearer[\s:=]+[\"']?)[\w\-.~+/]{8,}=*"), r"\1***"),
    # In quotes it may have blanks.
    (re.compile(rf"(?i)({_NAMED}[\"']?\s*[:=]\s*\")[^\"]+"), r"\1***"),
    (re.compile(rf"(?i)({_NAMED}[\"']?\s*[:=]\s*')[^']+"), r"\1***"),
    (re.compile(rf"(?i)({_HIDING}[\"']?\s*[:=]\s*[\"']?)[^\s\"',}}]+"), r"\1***"),
    # "token: expired" is a sentence, "token=expired" is none.
    (re.compile(r"(?i)(token\s*=\s*)[^\s\"',}&]+"), r"\1***"),
    # Options of programs, and elements of XML.
    (re.compile(rf"(?i)(--[\w-]*{_NAMED}\s+)[^\s\"']+"), r"\1***"),
    (re.compile(rf"(?i)(<[\w-]*{_NAMED}>)[^<]+"), r"\1***"),
    # Of EC2 (the alarm URLs of a stack), S3 and the webhook; in queries, headers and JSON.
    (re.compile(r"(?i)(signature[\"']?\s*[:=]\s*[\"']?)[\w\-.~+/%]{16,}=*"), r"\1***"),
    # The webhook's address with its token.
    (re.compile(r"(/v1/alarms/)[^\s\"'?<>]+"), r"\1***"),
    # In a URL; to the last "@", since a password may have one.
    (re.compile(r"(?<=://)[^/\s\"'<>]+(?=@)"), "***"),
]


def redact(text: str) -> str:
    """Mask whatever looks like a token or a password in a text from outside."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text
