"""A certificate authority of one's own, for tests of TLS."""

from __future__ import annotations

import datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Makes certificates; the first is its own."""

    def __init__(self, folder: Path, name: str, *, valid_hours: tuple[float, float] = (-1, 1)) -> None:
        self.folder = folder
        self.valid_hours = valid_hours
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / f"{name}.pem"
        builder = self._builder(self.name, self.key.public_key())
        made = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.file.write_bytes(made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, password: str | None = None, *, address: str = "127.0.0.1"
    ) -> tuple[Path, Path]:
        """A certificate and its key, as files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        here = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        made = self._builder(subject, key.public_key()).add_extension(here, critical=False)
        certificate, secret = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate.write_bytes(made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        locked: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            locked = serialization.BestAvailableEncryption(password.encode())
        secret.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
        )
        return certificate, secret

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(hours=self.valid_hours[0]))
            .not_valid_after(now + datetime.timedelta(hours=self.valid_hours[1]))
        )
