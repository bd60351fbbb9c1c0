"""Reads credentials for MCP servers (XP 8.2) from the environment and from files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moot.config.secrets.secret import Secret
from moot.config.secrets.token_source import TokenSource
from moot.config.section_reader import at, checked, mapping, one_of, strings
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.xprotocol.adapter.config.config_problems import ConfigProblems
from moot.xprotocol.adapter.config.source_settings import (
    API_KEY_HEADER,
    ApiKeyAuth,
    Auth,
    BearerAuth,
    CertificateAuth,
)
from moot.xprotocol.adapter.config.value_readers import read_existing

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)
# Keys under which people put the secret itself.
_LITERALS: Final = frozenset({"api_key", "apikey", "bearer", "key", "password", "secret", "token", "value"})


@dataclass(frozen=True, slots=True)
class ServerCredentials:
    """Readers of `auth:` and `pass_env:`."""

    folder: Path
    environ: Mapping[str, str]
    findings: ConfigProblems

    def read_auth(self, value: Json, path: str) -> Auth | None:
        if value is None:
            return None
        given = mapping(value, path)
        for key in given:
            if key.lower() in _LITERALS:
                raise UsageError(
                    f"{at(path, key)}: secrets are not allowed here; put it into an environment variable "
                    "and name the variable with token_env"
                )
        if "type" not in given:
            raise UsageError(f"{path}.type: is missing; bearer, api_key or client_certificate")
        kind = one_of(given["type"], ("bearer", "api_key", "client_certificate"), f"{path}.type")
        if kind == "client_certificate":
            return self._certificate(given, path)
        known = {"type": 0, "token_env": 0} | ({"header": 0} if kind == "api_key" else {})
        self.findings.check_keys(given, known, path)
        if given.get("token_env") is None:
            raise UsageError(
                f"{path}.token_env: is missing; it names the environment variable with the secret"
            )
        secret = self.read_secret(given["token_env"], f"{path}.token_env")
        if kind == "bearer":
            return BearerAuth(token=secret)
        header = checked(given.get("header", API_KEY_HEADER), str, "the name of a header", f"{path}.header")
        if not _HEADER.fullmatch(header):
            raise UsageError(f"{path}.header: is not the name of an HTTP header")
        return ApiKeyAuth(key=secret, header=header)

    def _certificate(self, given: Mapping[str, Json], path: str) -> CertificateAuth:
        self.findings.check_keys(
            given, dict.fromkeys(("type", "cert_file", "key_file", "password_env")), path
        )
        files: dict[str, Path] = {}
        for key in ("cert_file", "key_file"):
            if given.get(key) is None:
                raise UsageError(f"{path}.{key}: is missing; it names a PEM file")
            files[key] = read_existing(self.folder)(given[key], f"{path}.{key}")
        locked = given.get("password_env")
        password = None if locked is None else self.read_secret(locked, f"{path}.password_env")
        return CertificateAuth(cert_file=files["cert_file"], key_file=files["key_file"], password=password)

    def read_secret(self, name: Json, path: str) -> Secret:
        """The value of an environment variable; raises UsageError when it is missing or invalid."""
        text = TokenSource(Path(), self.environ).environment(name, path)
        # It becomes a header: a line break would start another one.
        if not text.isprintable() or not text.isascii():
            raise UsageError(
                f"{path}: the environment variable contains characters that are not allowed in a header"
            )
        return Secret(text)

    def read_pass_env(self, value: Json, path: str) -> dict[str, str]:
        """Values by variable name. Each that is not set is a problem of its own."""
        values: dict[str, str] = {}
        for place, name in enumerate(strings(value, path)):
            with self.findings.catching(f"{path}[{place}]"):
                values[name] = TokenSource(Path(), self.environ).environment(name, f"{path}[{place}]")
        return values
