# SPDX-License-Identifier: Apache-2.0
"""The certificate and key of the webhook."""

from __future__ import annotations

import ssl
from pathlib import Path

from mistral_failover import private_files
from mistral_failover.errors import CodedError


def context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS context of the webhook, for version 1.2 or later.

    Raises CodedError TLS_PAIR, TLS_KEY_OPEN.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        with private_files.opened(key, installed=True) as stream:
            # The file that was checked, whatever its name leads to now.
            made.load_cert_chain(certificate, f"/proc/self/fd/{stream.fileno()}")
    except private_files.NotPrivate as error:
        raise CodedError("TLS_KEY_OPEN", error.message, error.remedy) from None
    except (OSError, ssl.SSLError) as error:
        raise CodedError(
            "TLS_PAIR",
            f"{certificate} and {key} are not a certificate and its key: {_reason(error)}",
            "Give PEM files that belong together and that the server's user may read.",
        ) from None
    return made


def out_of_date(certificate: Path, key: Path) -> str | None:
    """Why clients would refuse the certificate by its dates; None if they would not.

    By a handshake with oneself: the standard library reads no certificate otherwise. Raises as
    :func:`context`.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context(certificate, key).wrap_bio(there, back, server_side=True)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.load_verify_locations(certificate)
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client = trusting.wrap_bio(back, there)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except ssl.SSLError:
            return None  # the client has said why
    return None


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or type(error).__name__
