"""Reads the section `gateway` of a moot.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from moot.config.cluster_config import SHARED_DEFAULTS, ClusterConfig
from moot.config.gateway_config import (
    Count,
    GatewayConfig,
    HttpConfig,
    JournalConfig,
    JournalMode,
    LogConfig,
    SmtpConfig,
    TlsConfig,
)
from moot.config.notification_reader import check_mail, read_notifications, read_public_url
from moot.config.participant_reader import ReadContext
from moot.config.secrets.kept_secret import read_with_secrets
from moot.config.secrets.token_source import TokenSource
from moot.config.section_reader import at, check_keys, mapping, optional, read_plain, read_struct
from moot.config.space.space_reader import participant_name
from moot.errors import UsageError
from moot.private_files import read_secret
from moot.protocol.operation import Json


def read_gateway(section: Mapping[str, Json], folder: Path, environ: Mapping[str, str]) -> GatewayConfig:
    """All of the section but what needs the rest of the file; raises UsageError that names the setting."""
    # These need more than this section.
    without_admins = {
        key: value for key, value in section.items() if key not in ("admin_tokens", "oidc", "mcp")
    }
    readers = {
        "journal": lambda value, path: _journal(value, path, folder),
        "smtp": lambda value, path: _smtp(value, path, environ),
        "public_url": read_public_url,
        "notifications": lambda value, path: read_notifications(value, path, folder, environ),
        "cluster": lambda value, path: _cluster(value, path, folder),
        "log": lambda value, path: read_struct(LogConfig, value, path),
        "http": lambda value, path: read_struct(HttpConfig, value, path),
        "tls": lambda value, path: _tls(value, path, folder),
    }
    gateway = read_struct(GatewayConfig, without_admins, "gateway", readers)
    check_mail(gateway)
    log = gateway.log
    if log.file is not None:
        log = msgspec.structs.replace(log, file=folder / log.file)
    return msgspec.structs.replace(gateway, data=folder / gateway.data, log=log)


def _tls(value: Json, path: str, folder: Path) -> TlsConfig | None:
    if value is None:
        return None
    tls = read_struct(TlsConfig, value, path)
    return msgspec.structs.replace(
        tls,
        certificate=folder / tls.certificate,
        key=folder / tls.key,
        client_ca=None if tls.client_ca is None else folder / tls.client_ca,
    )


def _cluster(value: Json, path: str, folder: Path) -> ClusterConfig | None:
    if value is None:
        return None
    if isinstance(value, dict) and value.get("serves") == "shared":
        value = SHARED_DEFAULTS | value
    cluster = read_struct(ClusterConfig, value, path)
    if cluster.serves == "shared" and cluster.shards == 1:
        raise UsageError(f"{path}.shards: 2 or more with serves: shared; the first one has no spaces")
    if cluster.replicas == 2:
        raise UsageError(f"{path}.replicas: 1 or 3; with 2 the loss of either server stops the log")
    if cluster.stale_seconds < cluster.unavailable_seconds:
        raise UsageError(f"{path}.stale_seconds: not shorter than unavailable_seconds")
    files = {
        name: folder / file
        for name in ("credentials_file", "tls_ca_file", "tls_certificate_file", "tls_key_file")
        if (file := getattr(cluster, name)) is not None
    }
    for name, file in files.items():
        if not file.is_file():
            raise UsageError(f"{path}.{name}: {file} is not there")
    if ("tls_certificate_file" in files) != ("tls_key_file" in files):
        raise UsageError(f"{path}: tls_certificate_file and tls_key_file go together")
    for name in files.keys() & {"credentials_file", "tls_key_file"}:
        # Whoever may write to the log may do everything.
        try:
            read_secret(files[name], max_bytes=0, what="the key to the cluster's log")
        except OSError as fault:
            raise UsageError(f"{path}.{name}: {fault.strerror}") from None
        except UsageError as fault:
            raise UsageError(f"{path}.{name}: {fault}") from None
    return msgspec.structs.replace(cluster, **files)


def _journal(value: Json, path: str, folder: Path) -> JournalConfig:
    if not isinstance(value, dict):
        return JournalConfig(mode=read_journal_mode(value, path))
    journal = read_struct(JournalConfig, value, path, {"mode": read_journal_mode})
    files = {
        name: folder / file
        for name in ("witnesses", "anchor")
        if (file := getattr(journal, name)) is not None
    }
    return msgspec.structs.replace(journal, **files)


class SpaceJournal(msgspec.Struct, frozen=True):
    """`journal` of one space; None: as the gateway has it."""

    mode: JournalMode | None = None
    retain_days: Count | None = None


def read_space_journal(value: Json, path: str) -> SpaceJournal:
    if not isinstance(value, dict):
        return SpaceJournal(read_journal_mode(value, path))
    return read_struct(SpaceJournal, value, path, {"mode": read_journal_mode})


def read_journal_mode(value: Json, path: str) -> JournalMode:
    """`journal:` of the gateway or of one space."""
    # YAML 1.1 reads a bare on or off as a switch.
    word = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
    mode: JournalMode = read_plain(JournalMode, word, path)
    return mode


def _smtp(value: Json, path: str, environ: Mapping[str, str]) -> SmtpConfig | None:
    if value is None:
        return None
    section = mapping(value, path)
    if "password_env" in section and section.get("user") is None:
        raise UsageError(f"{path}.password_env: a password without a user")
    variable = TokenSource(Path(), environ).environment
    return read_with_secrets(SmtpConfig, section, path, variable=variable)


def read_admins(
    gateway: GatewayConfig, value: Json, reading: ReadContext
) -> tuple[GatewayConfig, dict[str, Path]]:
    """The configuration with its administrators, and the files of tokens that the gateway makes for them."""
    admins: dict[str, str] = {}
    files: dict[str, Path] = {}
    for name, settings in optional(value, "gateway.admin_tokens").items():
        place = at("gateway.admin_tokens", name)
        participant_name(name, place)
        entry = optional(settings, place)
        check_keys(entry, ("token", "token_env"), place)
        if len(entry) > 1:
            raise UsageError(f"{place}: has to hold token or token_env, and not both")
        if "token_env" in entry:
            hash = reading.tokens.named(entry["token_env"], f"{place}.token_env")
        elif "token" in entry:
            reading.literals.append(f"{place}.token")
            hash = reading.tokens.listed(entry["token"], f"{place}.token")
        else:
            file = Path("admin") / f"{name}.token"
            files[name] = reading.tokens.data / file
            kept = reading.tokens.kept(file, place)
            if kept is None:
                continue
            hash = kept
        if hash in admins.values():
            raise UsageError(f"{place}: the same token as another administrator's")
        admins[name] = hash
    return msgspec.structs.replace(gateway, admin_tokens=admins), files
