"""Certificates for servers of the tests."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from tests.brokers._base import Tls

__all__ = ["Tls", "certificates"]


def certificates(folder: Path, *hosts: str) -> Tls:
    """A new authority and a certificate of it for `hosts` (127.0.0.1 and localhost by default), valid for a day."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.now(UTC)
    names: list[x509.GeneralName] = []
    for host in hosts or ("127.0.0.1", "localhost"):
        try:
            names.append(x509.IPAddress(ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def draft(subject: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        draft = x509.CertificateBuilder().subject_name(named(subject)).issuer_name(named("tests"))
        draft = draft.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return draft.not_valid_before(now - timedelta(minutes=5)).not_valid_after(now + timedelta(days=1))

    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_identity = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    uses = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    authority = (
        draft("tests", authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(uses, critical=True)
        .add_extension(authority_identity, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    origin = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_identity)
    certificate = (
        draft("server", key)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(origin, critical=False)
        .sign(authority_key, hashes.SHA256())
    )

    tls = Tls(cert=folder / "server.pem", key=folder / "server.key", ca=folder / "ca.pem")
    tls.ca.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    tls.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    tls.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return tls
