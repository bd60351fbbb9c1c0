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
from msgspec.structs import replace

from moot.config import former_settings
from moot.config.box_config import BoxConfig
from moot.config.config_warnings import warnings_of
from moot.config.configuration import Access, Configuration, McpServerConfig, MemberConfig, SpaceSettings
from moot.config.environment import blamed, with_overrides
from moot.config.former_settings import without_former
from moot.config.gateway_config import GatewayConfig
from moot.config.gateway_reader import read_admins, read_gateway, read_space_journal
from moot.config.mcp_reader import read_mcp
from moot.config.notification_reader import notification_notes
from moot.config.oidc_reader import read_oidc
from moot.config.participant_reader import (
    ReadContext,
    SpaceParticipants,
    read_mcp_server,
)
from moot.config.profiles import BUILT_IN, read_profiles, rights_of
from moot.config.secrets.secret import Secret
from moot.config.secrets.token_source import TokenSource
from moot.config.section_reader import (
    MistakeList,
    SeveralMistakes,
    at,
    check_keys,
    checked,
    mapping,
    one_of,
    optional,
    read_plain,
    strings,
    texts_of,
)
from moot.config.space.space_reader import SPACE_KEYS, notation_in, participant_name, read_setting
from moot.config.strict_yaml import read_yaml
from moot.errors import UsageError
from moot.protocol.kinds import WIDEN_BOX
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, read_capabilities
from moot.space.config import SpaceConfig

_MOOT_KEYS: Final = frozenset({"gateway", "spaces", "profiles"})
_REFERENCE_KEYS: Final = frozenset({"space", "participants", "defaults"})
# Services of the gateway with secrets of their own: nobody who connects needs them.
_SERVICE_KEYS: Final = frozenset({"smtp", "notifications", "oidc", "mcp"})
# What a space's section holds besides the rules of the space.
_AROUND_KEYS: Final = frozenset(
    {"access", "admit", "defaults", "journal", "title", "description", "default_participant", "mcp_servers"}
)
# A space's name stands in URLs and in paths of files.
_SPACE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_RIGHTS_KEYS: Final = frozenset({"capabilities", "profile", "notation"})
# As many as somebody reads on one screen.
MAX_MISTAKES_TOLD: Final = 20

# Key → its value and its path in the file.
Entries = Mapping[str, tuple[Json, str]]


# `mcp_servers:` of a space: MCP servers that `moot up` bridges, each as a participant of its name.

# What a tool server needs and no more: to answer questions that were put to everybody (an answer to its own
# name is owed, D-15), to tell of progress and of lists that changed, and to say that a tool changed (D-87).
SERVER_RIGHTS: Final = read_capabilities(
    [
        {"kind": "mcp/response"},
        {"kind": "mcp/request", "payload": {"method": "notifications/*"}},
        {"kind": "chat"},
    ]
)
# In a box: to propose that it is widened, and nothing else (decision 0271).
_BOXED_RIGHTS: Final = (
    *SERVER_RIGHTS,
    *read_capabilities(
        [{"kind": "mcp/proposal", "payload": {"method": "tools/call", "params": {"name": WIDEN_BOX}}}]
    ),
)
# Where proposed calls are tried or planned first: to say what they do.
_PREVIEW_RIGHTS: Final = read_capabilities([{"kind": "moot/preview"}])

_SERVER_KEYS: Final = frozenset(McpServerConfig.__struct_fields__)
# What else may be said of a server that no participant of its name stands for.
_ABOUT_KEYS: Final = frozenset({"capabilities", "exclusive", "notation", "profile", "token_env", "tokens"})


def read_servers(value: Json, path: str, found: SpaceParticipants) -> None:
    """Add every server to `found`: to the participant of its name, or as one with `SERVER_RIGHTS`."""
    mistakes = MistakeList()
    for name, settings in optional(value, path).items():
        place = at(path, name)
        with mistakes.catching():
            known = name in found.configs
            keys = _SERVER_KEYS | {"auto_start"} | (frozenset() if known else _ABOUT_KEYS)
            section = found.reading.known(mapping(settings, place), keys, place)
            settings = {key: value for key, value in section.items() if key in _SERVER_KEYS}
            server = read_mcp_server(settings, place, found.reading)
            if not known:
                about = {key: value for key, value in section.items() if key in _ABOUT_KEYS}
                box = server.box if isinstance(server.box, BoxConfig) else None
                rights = SERVER_RIGHTS if box is None else _BOXED_RIGHTS
                if server.plans or (box is not None and box.preview):
                    rights = (*rights, *_PREVIEW_RIGHTS)
                found.read(name, about, place, rights)
            member = found.members.get(name, MemberConfig())
            if member.mcp_server is not None or member.command is not None:
                raise UsageError(f"{place}: the participant of that name says itself how it is started")
            starts = checked(section.get("auto_start", True), bool, "true or false", f"{place}.auto_start")
            found.members[name] = msgspec.structs.replace(member, mcp_server=server, auto_start=starts)
            found.serve_once(name)
    mistakes.check()


def load(
    path: Path,
    *,
    environ: Mapping[str, str],
    data: Path | None = None,
    host: str | None = None,
    port: int | None = None,
    dry: bool = False,
    secrets: dict[str, Secret] | None = None,
    unset: dict[str, str] | None = None,
) -> Configuration:
    """Read a configuration; raises UsageError that names what is wrong. Makes missing tokens, unless `dry`.

    `data` is taken from where the process stands, paths in the file from where the file stands. `secrets` is
    filled with the tokens themselves by their hashes: for whoever hands them on, and nobody else. `unset` is
    for whoever only connects, as one participant: what the gateway alone needs is not read, and tokens whose
    variables are not set are no fault, but listed there.
    """
    try:
        options: dict[str, Json] = {"data": data, "host": host, "port": port}
        configuration, is_whole = _load(path, environ, options, dry=True, secrets=secrets, unset=unset)
        if not dry and not is_whole:
            # Only now: of a file that has a mistake anywhere nothing is made.
            configuration, _ = _load(path, environ, options, dry=False, secrets=secrets, unset=unset)
        return configuration
    except UsageError as fault:
        texts = texts_of(fault)
        more = len(texts) - MAX_MISTAKES_TOLD
        told = texts if more <= 0 else (*texts[:MAX_MISTAKES_TOLD], f"and {more} more mistakes")
        raise SeveralMistakes(f"{path}: {text}" for text in told) from None


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
    unset: dict[str, str] | None,
) -> tuple[Configuration, bool]:
    """And whether all that it needs has been made."""
    document = mapping(_document(path), "")
    is_reference = not _MOOT_KEYS & set(document) and bool(_REFERENCE_KEYS & set(document))
    folder = folder_of(path) if is_reference else path.absolute().parent

    section, origins, notes = with_overrides(optional(document.get("gateway"), "gateway"), environ)
    former = former_settings.SPACE if is_reference else former_settings.MOOT
    document, gone = without_former({**document, "gateway": section}, former)
    section = document.pop("gateway")
    notes += gone
    for key, value in options.items():
        if value is not None:
            section[key] = str(Path(value).absolute()) if key == "data" else value
            origins[f"gateway.{key}"] = f"--{key}"
    if unset is not None:
        section = {key: value for key, value in section.items() if key not in _SERVICE_KEYS}
    mistakes = MistakeList()
    gateway = GatewayConfig()
    with mistakes.catching():
        try:
            gateway = read_gateway(section, folder, environ)
        except UsageError as fault:
            raise blamed(fault, origins) from None

    with mistakes.catching():
        reading = ReadContext(
            tokens=TokenSource(
                gateway.data, environ, dry=dry, is_placed=not mistakes, secrets=secrets, unset=unset
            ),
            environ=environ,
            folder=folder,
            profiles=BUILT_IN if is_reference else read_profiles(document.get("profiles")),
            lenient=is_reference,
            in_cluster=gateway.cluster is not None,
            notes=notes,
        )
        spaces = _reference_space(document, reading) if is_reference else _spaces(document, reading)
    mistakes.check()
    admin_files: dict[str, Path] = {}
    if "admin_tokens" in section:
        gateway, admin_files = read_admins(gateway, section["admin_tokens"], reading)
    if "oidc" in section:
        try:
            oidc = read_oidc(
                section["oidc"], "gateway.oidc", reading.profiles, spaces, reading.tokens.environment
            )
        except UsageError as fault:
            raise blamed(fault, origins) from None
        gateway = msgspec.structs.replace(gateway, oidc=oidc)
    if "mcp" in section:
        try:
            mcp = read_mcp(section["mcp"], "gateway.mcp", spaces, gateway.oidc)
        except UsageError as fault:
            raise blamed(fault, origins) from None
        gateway = msgspec.structs.replace(gateway, mcp=mcp)
    warnings = warnings_of(path, gateway, spaces, reading.literals)
    configuration = Configuration(
        gateway=gateway,
        spaces=spaces,
        notes=(*reading.notes, *warnings, *notification_notes(gateway, spaces)),
        tokens_in_file=tuple(reading.literals),
        admin_token_files=admin_files,
    )
    # Said before anything is opened.
    _ = configuration.model_space
    return configuration, reading.tokens.is_whole


def _document(path: Path) -> Json:
    try:
        text = path.read_text("utf-8")
    except IsADirectoryError:
        inside = next((name for name in ("moot.yaml", "space.yaml") if (path / name).is_file()), None)
        hint = f"; there is {path / inside}" if inside else "; name the moot.yaml or space.yaml"
        raise UsageError(f"is a folder{hint}") from None
    except FileNotFoundError:
        # Where the reference implementation puts it.
        hidden = path.parent / ".mew" / path.name
        hint = f"there is {hidden}" if hidden.is_file() else "`moot init` makes a moot.yaml"
        raise UsageError(f"there is no such file; {hint}") from None
    except OSError as fault:
        raise UsageError(f"cannot be read: {fault.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError("is not UTF-8 text; save it as UTF-8") from None
    document = read_yaml(text)
    if document is None:
        raise UsageError("is empty; a moot.yaml has at least one space under spaces:")
    return document


# Spaces


def _spaces(document: Mapping[str, Json], reading: ReadContext) -> dict[str, SpaceSettings]:
    check_keys(document, _MOOT_KEYS, "")
    sections = optional(document.get("spaces"), "spaces")
    if not sections:
        raise UsageError("spaces: is missing; a gateway without a space has nothing to do")
    spaces, mistakes = {}, MistakeList()
    for name, value in sections.items():
        place = at("spaces", name)
        with mistakes.catching():
            section = optional(value, place)
            folder = reading.tokens.folder_of(_space_name(name, place), is_only=len(sections) == 1)
            with mistakes.catching():
                check_keys(section, SPACE_KEYS | _AROUND_KEYS, place)
            entries = {key: (entry, at(place, key)) for key, entry in section.items()}
            spaces[name] = _read_space(name, entries, place, reading, folder)
    mistakes.check()
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
    reading = replace(reading, strings=notation_in(entries.get("dialects", (None, ""))[0]))
    mistakes = MistakeList()
    rules: dict[str, Any] = {}
    for key, (value, place) in entries.items():
        with mistakes.catching():
            if key in SPACE_KEYS and key != "participants":
                rules[key] = read_setting(key, value, place, reading.strings)
    defaults: tuple[Capability, ...] = ()
    with mistakes.catching():
        value, place = entries.get("defaults", (None, at(path, "defaults")))
        section = reading.known(optional(value, place), _RIGHTS_KEYS, place)
        defaults = rights_of(section, place, reading.profiles, strings=reading.strings) or ()
    found = SpaceParticipants(reading, folder)
    with mistakes.catching():
        value, place = entries.get("participants", (None, at(path, "participants")))
        found.read_all(value, place, defaults)
    with mistakes.catching():
        value, place = entries.get("mcp_servers", (None, at(path, "mcp_servers")))
        read_servers(value, place, found)
    mistakes.check()
    journal = read_space_journal(*entries.get("journal", ({}, "")))
    return SpaceSettings(
        config=SpaceConfig(
            name=name,
            participants=found.configs,
            access=_access(entries, path),
            admit=_admit(entries),
            **rules,
        ),
        tokens=found.tokens,
        token_files=found.token_files,
        output_logs=found.output_logs,
        members=found.members,
        journal=journal.mode,
        retain_days=journal.retain_days,
        default_participant=_default_participant(entries, found.configs, reading),
        title=_words(entries, "title"),
        description=_words(entries, "description"),
    )


def _access(entries: Entries, path: str) -> Access:
    value, place = entries.get("access", ("private", at(path, "access")))
    access: Access = read_plain(Access, value, place)
    guests, _ = entries.get("anonymous", (None, ""))
    if access == "public" and guests is None:
        raise UsageError(f"{place}: a public space says under anonymous: what guests may do")
    if access != "public" and guests is not None:
        raise UsageError(f"{entries['anonymous'][1]}: guests come in only where access is public")
    if access != "restricted" and "admit" in entries:
        raise UsageError(f"{entries['admit'][1]}: has a meaning only where access is restricted")
    return access


def _admit(entries: Entries) -> frozenset[str]:
    value, place = entries.get("admit", ([], ""))
    return frozenset(
        participant_name(name, f"{place}[{index}]") for index, name in enumerate(strings(value, place))
    )


def _default_participant(
    entries: Entries, participants: Mapping[str, object], reading: ReadContext
) -> str | None:
    if "default_participant" not in entries:
        return None
    value, place = entries["default_participant"]
    name: str = checked(value, str, "the name of a participant", place)
    if name in participants:
        return name
    if not reading.lenient:
        one_of(name, participants, place)
    reading.notes.append(f"{place}: no such participant, ignored")
    return None


def _words(entries: Entries, key: str) -> str | None:
    value, place = entries.get(key, (None, ""))
    return None if value is None else str(checked(value, str, "text", place))
