# SPDX-License-Identifier: Apache-2.0
"""The certificate and key with which a process serves TLS, read again when their files change."""

from __future__ import annotations

import hashlib
import logging
import math
import ssl
import time
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from mistral_failover import private_files
from mistral_failover.errors import CodedError

LOG = logging.getLogger(__name__)
DAY = 86_400.0
_AGAIN = DAY
"""Seconds between two lines of the log about the same problem."""
_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name."""


@dataclass(frozen=True)
class CertificateProblem:
    """What is wrong, or soon will be. ``grave``: clients refuse the certificate now."""

    grave: bool
    code: str
    message: str
    remedy: str


@dataclass(frozen=True)
class _Read:
    """What the files had. ``begins``, ``ends``: seconds since the epoch; ``refused``: why clients
    refuse it, whatever the time is."""

    digest: bytes
    context: ssl.SSLContext
    begins: float
    ends: float
    refused: str | None


class ServedCertificate:
    """A certificate and its key, of PEM files.

    :param warning: seconds before its end from which it is a problem. One that lives for less than
        three times as long is one in the last third of its life: short-lived ones are renewed late.

    Raises CodedError TLS_PAIR, TLS_KEY_OPEN.
    """

    def __init__(self, certificate: Path, key: Path, *, warning: float) -> None:
        self._certificate, self._key = certificate, key
        self._warning = warning
        self._used = self._newest = _read(certificate, key)
        self._unusable: CodedError | None = None
        self._told: dict[str, float] = {}

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection, for TLS 1.2 or later. Those that exist keep
        theirs."""
        return self._used.context

    @property
    def ends(self) -> float:
        """When the certificate in use ends, in seconds since the epoch."""
        return self._used.ends

    def look(self) -> None:
        """Read the files again, and log each problem once a day. What cannot be used, or what
        clients would refuse, replaces nothing."""
        try:
            self._unusable = None
            if _digest(self._certificate, self._key) != self._newest.digest:
                self._newest = _read(self._certificate, self._key)
        except CodedError as error:
            self._unusable = error
        now = time.time()
        if self._newest is not self._used and self._refusal(self._newest, now) is None:
            self._used = self._newest
            LOG.info("The certificate %s was read again", self._certificate)
        self._tell(self.problems(now), time.monotonic())

    def problems(self, now: float | None = None) -> list[CertificateProblem]:
        """Return what is wrong ``now`` (seconds since the epoch)."""
        now = time.time() if now is None else now
        used, file = self._used, self._certificate
        found = []
        unusable = self._unusable.message if self._unusable else None
        if unusable is None and self._newest is not used:
            unusable = self._refusal(self._newest, now)
        if unusable is not None:
            found.append(
                CertificateProblem(
                    False,
                    "TLS_NOT_RENEWED",
                    f"the new {file} is not used, and the one before it still is: {unusable}",
                    "Correct the files; they are read again without a restart.",
                )
            )
        if why := self._refusal(used, now):
            found.append(
                CertificateProblem(
                    True,
                    "TLS_CERTIFICATE",
                    f"clients refuse {file}: {why}",
                    "Renew the certificate.",
                )
            )
        elif used.ends - now < min(self._warning, (used.ends - used.begins) / 3):
            left = (used.ends - now) / DAY
            found.append(
                CertificateProblem(
                    False,
                    "TLS_CERTIFICATE_ENDS",
                    f"the certificate {file} ends on {_date(used.ends)}, in {left:.0f} days",
                    "Renew it; the new one is read without a restart.",
                )
            )
        return found

    def _tell(self, found: list[CertificateProblem], elapsed: float) -> None:
        told = {each.code: self._told.get(each.code, -math.inf) for each in found}
        for each in found:
            if elapsed - told[each.code] >= _AGAIN:
                told[each.code] = elapsed
                level = logging.ERROR if each.grave else logging.WARNING
                LOG.log(level, "%s. %s [%s]", each.message, each.remedy, each.code)
        self._told = told

    @staticmethod
    def _refusal(read: _Read, now: float) -> str | None:
        if read.refused is not None:
            return read.refused
        if now >= read.ends:
            return f"it ended on {_date(read.ends)}"
        return f"it begins on {_date(read.begins)}" if now < read.begins else None


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def _digest(certificate: Path, key: Path) -> bytes:
    """Return a hash of both files. Raises CodedError TLS_PAIR, TLS_KEY_OPEN."""
    try:
        with private_files.opened(key, installed=True) as stream:
            return hashlib.sha256(certificate.read_bytes() + stream.read()).digest()
    except private_files.NotPrivate as error:
        raise CodedError("TLS_KEY_OPEN", error.message, error.remedy) from None
    except OSError as error:
        raise _no_pair(certificate, key, error) from None


def _read(certificate: Path, key: Path) -> _Read:
    """Read both files. Raises as :func:`_digest`."""
    digest = _digest(certificate, key)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        with private_files.opened(key, installed=True) as stream:
            # The file that was checked, whatever its name leads to now.
            made.load_cert_chain(certificate, f"/proc/self/fd/{stream.fileno()}")
        return _Read(digest, made, *_examined(certificate, made))
    except private_files.NotPrivate as error:
        raise CodedError("TLS_KEY_OPEN", error.message, error.remedy) from None
    except (OSError, ssl.SSLError) as error:
        raise _no_pair(certificate, key, error) from None


def _examined(certificate: Path, context: ssl.SSLContext) -> tuple[float, float, str | None]:
    """Return when a certificate begins and ends, and why clients refuse it at any time.

    By a handshake with oneself: the standard library reads no certificate otherwise.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(there, back, server_side=True)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.load_verify_locations(certificate)
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    client = trusting.wrap_bio(back, there)
    open_ends = [client, server]
    for side in islice(cycle((client, server)), _TURNS):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return 0.0, math.inf, error.verify_message
        except ssl.SSLError as error:
            return 0.0, math.inf, error.reason or "no client can use it"
        open_ends = [each for each in open_ends if each is not side]
        if not open_ends:
            break
    if client in open_ends:
        return 0.0, math.inf, "the handshake with it does not end"
    dates = client.getpeercert() or {}
    begins, ends = (ssl.cert_time_to_seconds(str(dates[key])) for key in ("notBefore", "notAfter"))
    return float(begins), float(ends), None


_TURNS = 12
"""Turns of both sides within which a handshake ends, whatever version of TLS they agree on."""


def _no_pair(certificate: Path, key: Path, error: OSError) -> CodedError:
    why = getattr(error, "reason", None) or error.strerror or type(error).__name__
    return CodedError(
        "TLS_PAIR",
        f"{certificate} and {key} are not a certificate and its key: {why}",
        "Give PEM files that belong together and that the server's user may read.",
    )
