# SPDX-License-Identifier: Apache-2.0
"""The certificate of the webhook: warned of before it ends, and read again when its files change.
The connections and certificates are real."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat

from mistral_failover.doctor import store as doctor
from mistral_failover.errors import CodedError
from mistral_failover.http_server import HttpServer, Refused, Request, Response
from mistral_failover.served_certificate import DAY, ServedCertificate

MONTH = 30 * DAY


class Files:
    """A certificate and its key, as a tool for renewals writes them."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "cert.pem", folder / "key.pem"

    def renew(self, days: float, of: float = 365.0) -> int:
        """Write a new pair that ends in so many days, after a life of so many; return its serial
        number."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "webhook")])
        ends = datetime.now(UTC) + timedelta(days=days)
        made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        made = made.not_valid_before(ends - timedelta(days=of)).not_valid_after(ends)
        signed = made.sign(key, hashes.SHA256())
        self.certificate.write_bytes(signed.public_bytes(Encoding.PEM))
        self.key.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        self.key.chmod(0o600)
        return signed.serial_number


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def served(files: Files) -> Callable[..., ServedCertificate]:
    """Serve a certificate that ends in so many days."""

    def make(days: float = 300.0, of: float = 365.0) -> ServedCertificate:
        files.renew(days, of)
        return ServedCertificate(files.certificate, files.key, warning=MONTH)

    return make


def codes(certificate: ServedCertificate, now: float | None = None) -> list[tuple[str, bool]]:
    return [(each.code, each.grave) for each in certificate.problems(now)]


class Hello:
    """A face that answers."""

    name = "test"
    largest = 0

    def answer(self, request: Request) -> Response:
        return Response(200, b"hello")

    def refusal(self, refused: Refused, peer: str) -> Response:
        return Response(refused.status)


@contextmanager
def listening(certificate: ServedCertificate) -> Iterator[tuple[str, int]]:
    door = socket.create_server(("127.0.0.1", 0))
    with HttpServer(door, Hello(), tls=certificate.context):
        yield door.getsockname()


def connect(address: tuple[str, int]) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection(address, timeout=30))


def serial(wire: ssl.SSLSocket) -> int:
    shown = wire.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


@pytest.mark.parametrize(
    ("days", "of", "found"),
    [
        (300, 365, []),
        (31, 365, []),
        (29, 365, [("TLS_CERTIFICATE_ENDS", False)]),
        (40, 90, []),
        (4, 6, []),  # short-lived certificates are renewed late
        (1, 6, [("TLS_CERTIFICATE_ENDS", False)]),
        (-1, 365, [("TLS_CERTIFICATE", True)]),
        (366, 365, [("TLS_CERTIFICATE", True)]),  # it has not begun
    ],
)
def test_a_certificate_is_warned_of_before_it_ends(
    served: Callable[..., ServedCertificate], days: float, of: float, found: list[Any]
) -> None:
    assert codes(served(days, of)) == found


def test_a_new_certificate_serves_the_next_connection_and_an_open_one_stays(
    files: Files, served: Callable[..., ServedCertificate]
) -> None:
    certificate = served(10)
    with listening(certificate) as address, connect(address) as early:
        new = files.renew(90)
        certificate.look()

        with connect(address) as late:
            assert serial(late) == new
            assert serial(early) != new
        early.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        assert early.recv(100).startswith(b"HTTP/1.1 200")
    assert codes(certificate) == []
    assert certificate.ends - time.time() > 89 * DAY


def _no_certificate(files: Files) -> None:
    files.certificate.write_text("this is no certificate\n")


def _of_another_key(files: Files) -> None:
    kept = files.key.read_bytes()
    files.renew(90)
    files.key.write_bytes(kept)


def _already_over(files: Files) -> None:
    files.renew(-1)


def _open_key(files: Files) -> None:
    files.renew(90)
    files.key.chmod(0o644)


def _missing(files: Files) -> None:
    files.key.unlink()


@pytest.mark.parametrize(
    "spoil", [_no_certificate, _of_another_key, _already_over, _open_key, _missing]
)
def test_new_files_that_cannot_be_used_keep_the_old_ones_and_are_told(
    files: Files,
    served: Callable[..., ServedCertificate],
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Files], None],
) -> None:
    certificate = served()
    with listening(certificate) as address:
        with connect(address) as before:
            old = serial(before)
        spoil(files)
        certificate.look()
        certificate.look()

        with connect(address) as after:
            assert serial(after) == old
        assert codes(certificate) == [("TLS_NOT_RENEWED", False)]
        assert [r.levelno for r in caplog.records] == [logging.WARNING], "once a day"

        new = files.renew(90)
        certificate.look()
        with connect(address) as again:
            assert serial(again) == new
        assert codes(certificate) == []


def test_the_log_repeats_a_warning_once_a_day(
    served: Callable[..., ServedCertificate],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    certificate, start = served(29), time.monotonic()
    for hours in (0, 1, 23, 25, 26):
        monkeypatch.setattr(time, "monotonic", lambda hours=hours: start + hours * 3600)
        certificate.look()
    assert len([r for r in caplog.records if "TLS_CERTIFICATE_ENDS" in r.getMessage()]) == 2


def test_the_doctor_of_a_server_names_it(served: Callable[..., ServedCertificate]) -> None:
    class Examination:
        def __init__(self, certificate: ServedCertificate | None) -> None:
            self.request = self
            self.runtime = self
            self.certificate = certificate

    def levels(certificate: ServedCertificate | None) -> list[str]:
        return [each.level for each in doctor.certificate(Examination(certificate))]  # type: ignore[arg-type]

    assert levels(None) == []
    assert levels(served(300)) == ["ok"]
    assert levels(served(29)) == ["warn"]
    assert levels(served(-1)) == ["error"]


def test_what_is_no_pair_is_refused_at_the_start(files: Files) -> None:
    files.renew(90)
    _of_another_key(files)
    with pytest.raises(CodedError) as refused:
        ServedCertificate(files.certificate, files.key, warning=MONTH)
    assert refused.value.code == "TLS_PAIR"
