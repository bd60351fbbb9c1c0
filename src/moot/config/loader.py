"""From a file, the environment and the command line to a `Configuration`.

A file is a `moot.yaml` (`gateway:`, `spaces:`, `profiles:`), read strictly, or a `space.yaml` as the MEW
reference implementation has them (`space:`, `participants:`, `defaults:`), read as forgivingly as there. Its
keys say which one it is. Either way everything is known after reading: names, rights, tokens, paths; nothing
is looked up later. A dry run reads the same, but makes no tokens.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from moot.config.cluster_config import ClusterConfig
from moot.config.config_warnings import warnings_of
from moot.config.configuration import Access, Configuration, SpaceSettings
from moot.config.environment import blamed, with_overrides
from moot.config.gateway_config import (
    GatewayConfig,
    HttpConfig,
    JournalConfig,
    JournalMode,
    LogConfig,
    Secret,
    SmtpConfig,
    TlsConfig,
)
from moot.config.notification_reader import (
    check_mail,
    notification_notes,
    read_notifications,
    read_public_url,
)
from moot.config.oidc_reader import read_oidc
from moot.config.participant_reader import ReadContext, read_participants
from moot.config.profiles import BUILT_IN, read_profiles, rights_of
from moot.config.section_reader import (
    at,
    check_keys,
    checked,
    mapping,
    one_of,
    optional,
    read_plain,
    read_struct,
    strings,
)
from moot.config.server_reader import read_servers
from moot.config.space_reader import SPACE_KEYS, participant_name, read_setting
from moot.config.strict_yaml import read_yaml
from moot.config.token_source import TokenSource
from moot.errors import UsageError
from moot.private_files import read_secret
from moot.protocol.operation import Json
from moot.space.config import SpaceConfig

_MOOT_KEYS: Final = frozenset({"gateway", "spaces", "profiles"})
_REFERENCE_KEYS: Final = frozenset({"space", "participants", "defaults"})
# What a space's section holds besides the rules of the space.
_AROUND_KEYS: Final = frozenset(
    {"access", "admit", "defaults", "journal", "title", "description", "default_participant", "mcp_servers"}
)
# A space's name stands in URLs and in paths of files.
_SPACE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_RIGHTS_KEYS: Final = frozenset({"capabilities", "profile", "notation"})

# Key → its value and its path in the file.
Entries = Mapping[str, tuple[Json, str]]


def load(
    path: Path,
    *,
    environ: Mapping[str, str],
    data: Path | None = None,
    host: str | None = None,
    port: int | None = None,
    dry: bool = False,
    secrets: dict[str, Secret] | None = None,
) -> Configuration:
    """Read a configuration; raises UsageError that names what is wrong. Makes missing tokens, unless `dry`.

    `data` is taken from where the process stands, paths in the file from where the file stands. `secrets` is
    filled with the tokens themselves by their hashes: for whoever hands them on, and nobody else.
    """
    try:
        options: dict[str, Json] = {"data": data, "host": host, "port": port}
        return _load(path, environ, options, dry=dry, secrets=secrets)
    except UsageError as fault:
        raise UsageError(f"{path}: {fault}") from None


def folder_of(path: Path) -> Path:
    """What relative paths in this configuration file are relative to, and where its members are started."""
    # The reference implementation keeps its file in .mew or beside it; either way it runs beside.
    beside = path.absolute().parent
    return beside.parent if beside.name == ".mew" else beside


def _load(
    path: Path,
    environ: Mapping[str, str],
    options: Mapping[str, Json],
    *,
    dry: bool,
    secrets: dict[str, Secret] | None,
) -> Configuration:
    document = mapping(_document(path), "")
    is_reference = not _MOOT_KEYS & set(document) and bool(_REFERENCE_KEYS & set(document))
    folder = folder_of(path) if is_reference else path.absolute().parent

    section, origins, notes = with_overrides(optional(document.get("gateway"), "gateway"), environ)
    for key, value in options.items():
        if value is not None:
            section[key] = str(Path(value).absolute()) if key == "data" else value
            origins[f"gateway.{key}"] = f"--{key}"
    try:
        gateway = _read_gateway(section, folder, environ)
    except UsageError as fault:
        raise blamed(fault, origins) from None

    reading = ReadContext(
        tokens=TokenSource(gateway.data, environ, dry=dry, secrets=secrets),
        environ=environ,
        folder=folder,
        profiles=BUILT_IN if is_reference else read_profiles(document.get("profiles")),
        lenient=is_reference,
        notes=notes,
    )
    spaces = _reference_space(document, reading) if is_reference else _spaces(document, reading)
    admin_files: dict[str, Path] = {}
    if "admin_tokens" in section:
        gateway, admin_files = _with_admins(gateway, section["admin_tokens"], reading)
    if "oidc" in section:
        try:
            oidc = read_oidc(section["oidc"], "gateway.oidc", reading.profiles, spaces)
        except UsageError as fault:
            raise blamed(fault, origins) from None
        if oidc and gateway.cluster is not None:
            raise UsageError(
                "gateway.oidc: does not work together with gateway.cluster yet: use the gateway's own tokens"
            )
        gateway = msgspec.structs.replace(gateway, oidc=oidc)
    warnings = warnings_of(path, gateway, spaces, reading.literals)
    configuration = Configuration(
        gateway=gateway,
        spaces=spaces,
        notes=(*reading.notes, *warnings, *notification_notes(gateway, spaces)),
        admin_token_files=admin_files,
    )
    # Said before anything is opened.
    _ = configuration.model_space
    return configuration


def _document(path: Path) -> Json:
    try:
        text = path.read_text("utf-8")
    except IsADirectoryError:
        inside = next((name for name in ("moot.yaml", "space.yaml") if (path / name).is_file()), None)
        hint = f"; there is {path / inside}" if inside else "; name the moot.yaml or space.yaml"
        raise UsageError(f"is a folder{hint}") from None
    except FileNotFoundError:
        raise UsageError("there is no such file; `moot init` makes a moot.yaml") from None
    except OSError as fault:
        raise UsageError(f"cannot be read: {fault.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError("is not UTF-8 text; save it as UTF-8") from None
    document = read_yaml(text)
    if document is None:
        raise UsageError("is empty; a moot.yaml has at least one space under spaces:")
    return document


# The gateway


def _read_gateway(section: Mapping[str, Json], folder: Path, environ: Mapping[str, str]) -> GatewayConfig:
    # These need more than this section.
    without_admins = {key: value for key, value in section.items() if key not in ("admin_tokens", "oidc")}
    readers = {
        "journal": _journal,
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
    cluster = read_struct(ClusterConfig, value, path)
    if cluster.replicas == 2:
        raise UsageError(f"{path}.replicas: 1 or 3; with 2 the loss of either server stops the log")
    if cluster.stale_seconds < cluster.unavailable_seconds:
        raise UsageError(f"{path}.stale_seconds: not shorter than unavailable_seconds")
    files = {
        name: folder / file
        for name in ("credentials_file", "tls_ca_file")
        if (file := getattr(cluster, name)) is not None
    }
    for name, file in files.items():
        if not file.is_file():
            raise UsageError(f"{path}.{name}: {file} is not there")
    if "credentials_file" in files:
        # Whoever may write to the log may do everything.
        try:
            read_secret(files["credentials_file"], max_bytes=0, what="the key to the cluster's log")
        except OSError as fault:
            raise UsageError(f"{path}.credentials_file: {fault.strerror}") from None
        except UsageError as fault:
            raise UsageError(f"{path}.credentials_file: {fault}") from None
    return msgspec.structs.replace(cluster, **files)


def _journal(value: Json, path: str) -> JournalConfig:
    if not isinstance(value, dict):
        return JournalConfig(mode=_journal_mode(value, path))
    return read_struct(JournalConfig, value, path, {"mode": _journal_mode})


def _journal_mode(value: Json, path: str) -> JournalMode:
    # YAML 1.1 reads a bare on or off as a switch.
    word = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
    mode: JournalMode = read_plain(JournalMode, word, path)
    return mode


def _smtp(value: Json, path: str, environ: Mapping[str, str]) -> SmtpConfig | None:
    if value is None:
        return None
    section = mapping(value, path)
    if "password" in section:
        raise UsageError(f"{path}.password: never in a file; password_env names the variable that holds it")
    smtp = read_struct(SmtpConfig, section, path)
    if smtp.password_env is None:
        return smtp
    if smtp.user is None:
        raise UsageError(f"{path}.password_env: a password without a user")
    password = TokenSource(Path(), environ).environment(smtp.password_env, f"{path}.password_env")
    return msgspec.structs.replace(smtp, password=Secret(password))


def _with_admins(
    gateway: GatewayConfig, value: Json, reading: ReadContext
) -> tuple[GatewayConfig, dict[str, Path]]:
    admins: dict[str, str] = {}
    files: dict[str, Path] = {}
    for name, settings in optional(value, "gateway.admin_tokens").items():
        here = at("gateway.admin_tokens", name)
        participant_name(name, here)
        entry = optional(settings, here)
        check_keys(entry, ("token", "token_env"), here)
        if len(entry) > 1:
            raise UsageError(f"{here}: has to hold token or token_env, and not both")
        if "token_env" in entry:
            hash = reading.tokens.named(entry["token_env"], f"{here}.token_env")
        elif "token" in entry:
            reading.literals.append(f"{here}.token")
            hash = reading.tokens.listed(entry["token"], f"{here}.token")
        else:
            file = Path("admin") / f"{name}.token"
            files[name] = reading.tokens.data / file
            kept = reading.tokens.kept(file, here)
            if kept is None:
                continue
            hash = kept
        if hash in admins.values():
            raise UsageError(f"{here}: the same token as another administrator's")
        admins[name] = hash
    return msgspec.structs.replace(gateway, admin_tokens=admins), files


# Spaces


def _spaces(document: Mapping[str, Json], reading: ReadContext) -> dict[str, SpaceSettings]:
    check_keys(document, _MOOT_KEYS, "")
    sections = optional(document.get("spaces"), "spaces")
    if not sections:
        raise UsageError("spaces: is missing; a gateway without a space has nothing to do")
    spaces = {}
    for name, value in sections.items():
        here = at("spaces", name)
        section = optional(value, here)
        check_keys(section, SPACE_KEYS | _AROUND_KEYS, here)
        entries = {key: (entry, at(here, key)) for key, entry in section.items()}
        folder = reading.tokens.folder_of(_space_name(name, here), is_only=len(sections) == 1)
        spaces[name] = _read_space(name, entries, here, reading, folder)
    return spaces


def _reference_space(document: Mapping[str, Json], reading: ReadContext) -> dict[str, SpaceSettings]:
    """D-14: the one space of a `space.yaml`. Settings of ours may stand at the top or under `space:`."""
    inner = dict(optional(document.get("space"), "space"))
    _check_meant(document, inner)
    id: str = checked(inner.pop("id", None) or "default", str, "text", "space.id")
    name = space_name_for(id)
    if "name" in inner:
        inner["title"] = inner.pop("name")
    keys = SPACE_KEYS | _AROUND_KEYS
    entries: dict[str, tuple[Json, str]] = {"reference_compat": (True, "reference_compat")}
    top = {key: value for key, value in document.items() if key != "space"}
    for key, value in reading.known(top, keys, "").items():
        entries[key] = (value, key)
    for key, value in reading.known(inner, keys - {"participants", "defaults"}, "space").items():
        if key in top:
            raise UsageError(f"space.{key}: stands at the top of the file as well")
        entries[key] = (value, f"space.{'name' if key == 'title' else key}")
    folder = reading.tokens.folder_of(name, is_only=True)
    settings = _read_space(name, entries, "space", reading, folder)
    return {name: settings if name == id else msgspec.structs.replace(settings, other_name=id)}


def _check_meant(document: Mapping[str, Json], inner: Mapping[str, Json]) -> None:
    """That this is a space.yaml, and no moot.yaml with a typing error or a part in the wrong place."""
    if "participants" in document:
        return
    if "participants" in inner:
        raise UsageError("space.participants: participants: stands beside space:, not under it")
    known = SPACE_KEYS | _AROUND_KEYS
    for name, value in inner.items():
        if name not in known and isinstance(value, dict) and known & set(value):
            raise UsageError(
                f"space: did you mean spaces? In a moot.yaml, {at('spaces', name)} is a space; with space:,"
                " the file is a space.yaml, which has its participants: beside it"
            )


def is_space_name(name: str) -> bool:
    return _SPACE_NAME.fullmatch(name) is not None


def space_name_for(id: str) -> str:
    """A space's name after an id that may be any text, such as `My Project`: My-Project."""
    if is_space_name(id):
        return id
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", id).strip("-._")[:64]
    return readable or f"space-{hashlib.sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _space_name(name: str, path: str) -> str:
    if not is_space_name(name):
        raise UsageError(
            f"{path}: a space's name has 1 to 64 letters, digits, '.', '_' or '-',"
            " and starts with a letter or digit"
        )
    return name


def _read_space(name: str, entries: Entries, path: str, reading: ReadContext, folder: Path) -> SpaceSettings:
    rules: dict[str, Any] = {
        key: read_setting(key, value, here)
        for key, (value, here) in entries.items()
        if key in SPACE_KEYS and key != "participants"
    }
    value, here = entries.get("defaults", (None, at(path, "defaults")))
    section = reading.known(optional(value, here), _RIGHTS_KEYS, here)
    defaults = rights_of(section, here, reading.profiles) or ()

    value, here = entries.get("participants", (None, at(path, "participants")))
    found = read_participants(value, here, reading, folder=folder, defaults=defaults)
    value, here = entries.get("mcp_servers", (None, at(path, "mcp_servers")))
    read_servers(value, here, reading, folder=folder, found=found)
    return SpaceSettings(
        config=SpaceConfig(name=name, participants=found.configs, **rules),
        access=_access(entries, path),
        admit=_admit(entries),
        tokens=found.tokens,
        token_files=found.token_files,
        output_logs=found.output_logs,
        members=found.members,
        journal=_journal_mode(*entries["journal"]) if "journal" in entries else None,
        default_participant=_default_participant(entries, found.configs, reading),
        title=_words(entries, "title"),
        description=_words(entries, "description"),
    )


def _access(entries: Entries, path: str) -> Access:
    value, here = entries.get("access", ("private", at(path, "access")))
    access: Access = read_plain(Access, value, here)
    guests, _ = entries.get("anonymous", (None, ""))
    if access == "public" and guests is None:
        raise UsageError(f"{here}: a public space says under anonymous: what guests may do")
    if access != "public" and guests is not None:
        raise UsageError(f"{entries['anonymous'][1]}: guests come in only where access is public")
    if access != "restricted" and "admit" in entries:
        raise UsageError(f"{entries['admit'][1]}: has a meaning only where access is restricted")
    return access


def _admit(entries: Entries) -> frozenset[str]:
    value, here = entries.get("admit", ([], ""))
    return frozenset(
        participant_name(name, f"{here}[{index}]") for index, name in enumerate(strings(value, here))
    )


def _default_participant(
    entries: Entries, participants: Mapping[str, object], reading: ReadContext
) -> str | None:
    if "default_participant" not in entries:
        return None
    value, here = entries["default_participant"]
    name: str = checked(value, str, "the name of a participant", here)
    if name in participants:
        return name
    if not reading.lenient:
        one_of(name, participants, here)
    reading.notes.append(f"{here}: no such participant, ignored")
    return None


def _words(entries: Entries, key: str) -> str | None:
    value, here = entries.get(key, (None, ""))
    return None if value is None else str(checked(value, str, "text", here))
