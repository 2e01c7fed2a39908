# SPDX-License-Identifier: Apache-2.0
"""A broker that can not show a valid certificate is told nothing."""

import contextlib
import datetime
import ipaddress
import socket
import ssl
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mistral_failover.agent.channel.links import BrokerUnavailable, links_to


def certificate(name, address, issuer=None, issuer_key=None):
    """A certificate for an address, and its key; its own issuer unless there is another."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]),
            critical=False,
        )
    )
    return builder.sign(issuer_key or key, hashes.SHA256()), key


def pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def authority(tmp_path):
    made, key = certificate("authority", "192.0.2.1")
    (tmp_path / "ca.pem").write_bytes(pem(made))
    return made, key


@pytest.fixture
def listen(tmp_path, authority):
    """A listener that shows a certificate for an address, and keeps what it is told after it."""
    with contextlib.ExitStack() as stack:

        def make(address):
            made, key = certificate("broker", address, *authority)
            private = key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            (tmp_path / "broker.pem").write_bytes(pem(made) + private)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tmp_path / "broker.pem")
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            told = []

            def serve():
                with contextlib.suppress(OSError), listener.accept()[0] as plain:
                    plain.settimeout(10)
                    with context.wrap_socket(plain, server_side=True) as secure:
                        told.append(secure.recv(8))

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            stack.callback(thread.join, 10)
            return listener.getsockname()[1], told

        yield make


def attempt(url):
    seconds = iter([10.0])  # for the one attempt, and none for another
    with pytest.raises(BrokerUnavailable) as raised:
        links_to(url).insist(lambda _: None, lambda: next(seconds, 0.0), lambda: None)
    assert "hush" not in str(raised.value)
    return raised.value


def test_a_broker_with_a_valid_certificate_is_spoken_to(listen, tmp_path):
    port, told = listen("127.0.0.1")
    away = attempt(f"amqps://user:hush@127.0.0.1:{port}/?cafile={tmp_path}/ca.pem")
    assert not away.refused  # it spoke no AMQP
    assert told == [b"AMQP\x00\x00\x09\x01"]


def test_a_broker_with_a_certificate_of_another_host_is_not(listen, tmp_path):
    port, told = listen("192.0.2.7")
    away = attempt(f"amqps://user:hush@127.0.0.1:{port}/?cafile={tmp_path}/ca.pem")
    assert away.refused
    assert "certificate" in str(away)
    assert told == []


def test_a_broker_with_a_certificate_of_an_unknown_authority_is_not(listen, tmp_path):
    other, _ = certificate("other", "127.0.0.1")
    (tmp_path / "other.pem").write_bytes(pem(other))
    for parameter in (f"?cafile={tmp_path}/other.pem", ""):
        port, told = listen("127.0.0.1")
        assert attempt(f"amqps://user:hush@127.0.0.1:{port}/{parameter}").refused
        assert told == []
