"""The participants of a space as a file names them: rights, tokens, and how a member is started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from moot.config.box_config import read_box
from moot.config.configuration import McpServerConfig, McpSignInConfig, MemberConfig, TokenGrant
from moot.config.profiles import Profiles, rights_of
from moot.config.secrets.secret_config import read_secrets
from moot.config.secrets.token_source import TokenSource
from moot.config.section_reader import (
    MistakeList,
    Reader,
    at,
    check_keys,
    checked,
    mapping,
    optional,
    probably,
    read_plain,
    read_struct,
    strings,
)
from moot.config.space.space_reader import participant_name
from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, Notation
from moot.space.config import ParticipantConfig

_RIGHTS_KEYS: Final = frozenset({"capabilities", "profile", "notation"})
_MEMBER_KEYS: Final = frozenset(MemberConfig.__struct_fields__)
PARTICIPANT_KEYS: Final = frozenset(
    {"exclusive", "tokens", "token_env", "output_log", *_RIGHTS_KEYS, *_MEMBER_KEYS}
)
_TOKEN_KEYS: Final = frozenset({"token", "token_env", *_RIGHTS_KEYS})


class ReadContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a file is read with. In a `lenient` file unknown keys are noted, in others they are mistakes."""

    tokens: TokenSource
    environ: Mapping[str, str]
    # What relative paths in the file are relative to.
    folder: Path
    profiles: Profiles
    lenient: bool = False
    # Whether several gateways serve these spaces.
    in_cluster: bool = False
    # The notation of capability strings in the space that is read (D-90).
    strings: Notation = "mew"
    notes: list[str] = msgspec.field(default_factory=list)
    # Paths of tokens that stand in the file itself.
    literals: list[str] = msgspec.field(default_factory=list)

    def known(self, section: Mapping[str, Json], known: frozenset[str], path: str) -> dict[str, Json]:
        """The known part of a section."""
        if not self.lenient:
            check_keys(section, known, path)
        for key in section:
            if key not in known:
                meant = probably(key, known)
                hint = f"; did you mean {meant}?" if meant else ""
                self.notes.append(f"{at(path, key)}: not known here, ignored{hint}")
        # In a lenient file nothing behind the colon is nothing said.
        return {
            key: value
            for key, value in section.items()
            if key in known and not (self.lenient and value is None)
        }


class SpaceParticipants(msgspec.Struct):
    """The participants of a space, as far as its sections were read."""

    reading: ReadContext
    # Of generated tokens, relative to the data folder.
    folder: Path
    configs: dict[str, ParticipantConfig] = msgspec.field(default_factory=dict)
    tokens: dict[str, TokenGrant] = msgspec.field(default_factory=dict)
    token_files: dict[str, Path] = msgspec.field(default_factory=dict)
    output_logs: dict[str, Path] = msgspec.field(default_factory=dict)
    members: dict[str, MemberConfig] = msgspec.field(default_factory=dict)
    # Those of which the file says whether they are exclusive.
    said_exclusive: set[str] = msgspec.field(default_factory=set)

    def read_all(self, value: Json, path: str, defaults: tuple[Capability, ...]) -> None:
        """Add all participants of a section; `defaults` are the rights of those of which it says none."""
        mistakes = MistakeList()
        named = optional(value, path)
        if not self.reading.lenient:
            self.reading.tokens.make_missing(
                self.folder / f"{participant_name(name, at(path, name))}.token"
                for name, settings in named.items()
                if isinstance(settings, list)
                or (isinstance(settings, dict) and settings.keys().isdisjoint(("tokens", "token_env")))
            )
        for name, settings in named.items():
            place = at(path, name)
            with mistakes.catching():
                if isinstance(settings, list):
                    settings = {"capabilities": settings}
                elif settings is None and self.reading.lenient:
                    settings = {}
                section = self.reading.known(mapping(settings, place), PARTICIPANT_KEYS, place)
                self.read(name, section, place, defaults)
                self._read_member(name, section, place)
        mistakes.check()

    def read(
        self, name: str, section: Mapping[str, Json], path: str, defaults: tuple[Capability, ...]
    ) -> None:
        """Add one participant's name, rights and tokens."""
        participant_name(name, path)
        rights = rights_of(section, path, self.reading.profiles, strings=self.reading.strings)
        self.configs[name] = ParticipantConfig(
            capabilities=defaults if rights is None else rights,
            exclusive=checked(section.get("exclusive", False), bool, "true or false", f"{path}.exclusive"),
            credentials=self._read_tokens(name, section, path),
        )
        if "exclusive" in section:
            self.said_exclusive.add(name)

    def serve_once(self, name: str) -> None:
        """A tool server that runs twice in a cluster would carry out each call twice: by default the one that
        joined last has the calls."""
        if self.reading.in_cluster and name not in self.said_exclusive:
            self.configs[name] = msgspec.structs.replace(self.configs[name], exclusive=True)

    def _read_tokens(self, name: str, section: Mapping[str, Json], path: str) -> tuple[str, ...]:
        reading = self.reading
        hashes: list[str] = []

        def admit(hash: str, place: str, grant: TokenGrant) -> None:
            other = self.tokens.get(hash)
            if other is not None and other != grant:
                is_own = other.participant == name
                whom = "this participant, with other rights" if is_own else other.participant
                raise UsageError(f"{place}: the same token as one of {whom}; every token admits one")
            self.tokens[hash] = grant
            if hash not in hashes:
                hashes.append(hash)

        own = TokenGrant(participant=name)
        if "token_env" in section:
            place = f"{path}.token_env"
            admit(reading.tokens.named(section["token_env"], place), place, own)
        for index, entry in enumerate(_token_entries(section, path)):
            place = f"{path}.tokens[{index}]"
            if isinstance(entry, dict):
                token = _read_token_entry(entry, place, reading)
                admit(token, place, _grant(name, entry, place, reading))
            else:
                reading.literals.append(place)
                admit(reading.tokens.listed(entry, place), place, own)
        if reading.lenient:
            # As the reference implementation does; an empty variable is none.
            variable = f"MEW_TOKEN_{name.upper().replace('-', '_')}"
            if reading.environ.get(variable):
                admit(reading.tokens.named(variable, path), f"{path} ({variable})", own)
            kept = _reference_token_file(reading.folder, name)
            if kept is not None:
                admit(reading.tokens.filed(kept, path), f"{path} ({kept})", own)
                self.token_files[name] = kept
        if not hashes and "tokens" not in section:
            file = self.folder / f"{name}.token"
            made = reading.tokens.kept(file, path)
            self.token_files[name] = reading.tokens.data / file
            if made is not None:
                admit(made, path, own)
        if "tokens" in section and not hashes:
            reading.notes.append(f"{path}.tokens: is empty, so nobody can join as {name}")
        return tuple(hashes)

    def _read_member(self, name: str, section: Mapping[str, Json], path: str) -> None:
        member = None
        if not _MEMBER_KEYS.isdisjoint(section):
            part = {key: value for key, value in section.items() if key in _MEMBER_KEYS}
            # The reference implementation starts nothing unasked.
            part.setdefault("auto_start", not self.reading.lenient)
            readers = _MEMBER_READERS | {
                "mcp_server": lambda value, place: read_mcp_server(value, place, self.reading)
            }
            member = self.members[name] = read_struct(MemberConfig, part, path, readers)
            if member.mcp_server is not None:
                self.serve_once(name)
        if "output_log" in section:
            file: Path = read_plain(Path, section["output_log"], f"{path}.output_log")
            # What a program that is started prints goes to its own log; it joins by itself.
            joins = member is None or member.command is None
            if joins if member is None or member.auto_connect is None else member.auto_connect:
                self.output_logs[name] = self.reading.folder / file


# Tokens


def _reference_token_file(folder: Path, name: str) -> Path | None:
    """Where the reference implementation keeps a participant's token, if it has made one."""
    for place in (folder / ".mew", folder):
        file = place / "tokens" / f"{name}.token"
        if file.is_symlink() or file.exists():
            return file
    return None


def _token_entries(section: Mapping[str, Json], path: str) -> list[Json]:
    entries: list[Json] = checked(section.get("tokens", []), list, "a list of tokens", f"{path}.tokens")
    return entries


def _read_token_entry(entry: Json, path: str, reading: ReadContext) -> str:
    section = mapping(entry, path)
    check_keys(section, _TOKEN_KEYS, path)
    if ("token" in section) == ("token_env" in section):
        raise UsageError(f"{path}: has to hold token or token_env, and not both")
    if "token_env" in section:
        return reading.tokens.named(section["token_env"], f"{path}.token_env")
    reading.literals.append(f"{path}.token")
    return reading.tokens.listed(section["token"], f"{path}.token")


def _grant(name: str, section: Mapping[str, Json], path: str, reading: ReadContext) -> TokenGrant:
    rights = rights_of(section, path, reading.profiles, strings=reading.strings)
    return TokenGrant(participant=name, capabilities=rights, profile=section.get("profile"))


# Servers


def read_mcp_server(value: Json, path: str, reading: ReadContext) -> McpServerConfig:
    """How one MCP server is started or reached."""
    known = frozenset(McpServerConfig.__struct_fields__)
    section = reading.known(mapping(value, path), known, path)
    server = read_struct(McpServerConfig, section, path, _COMMAND_READERS)
    if (server.command is None) == (server.url is None):
        raise UsageError(f"{path}: has to hold command or url, and not both")
    of = "url" if server.url is None else "command"
    for key in (
        ("headers", "transport", "oauth", "credentials")
        if server.url is None
        else ("args", "env", "cwd", "box")
    ):
        if key in section and not reading.lenient:
            raise UsageError(f"{at(path, key)}: has a meaning only with {of}")
    if server.plans and server.credentials != "server":
        raise UsageError(f"{at(path, 'plans')}: are made with the account of the bridge: credentials: server")
    if server.oauth is not None and any(name.lower() == "authorization" for name in server.headers):
        raise UsageError(f"{at(path, 'oauth')}: cannot stand beside the header Authorization")
    return server


def _sign_in(value: Json, path: str) -> McpSignInConfig:
    read = read_struct(McpSignInConfig, value, path)
    if read.grant == "client_credentials" and (read.client_id is None or read.client_secret is None):
        raise UsageError(f"{path}: client_credentials needs client_id and client_secret")
    if read.grant == "token_exchange" and (read.client_id is None or read.issuer is None):
        raise UsageError(f"{path}: token_exchange needs client_id and issuer")
    if read.client_secret is not None and not read.client_secret.startswith("${"):
        raise UsageError(
            f"{at(path, 'client_secret')}: name a variable, such as ${{DOCS_SECRET}}, not the secret"
        )
    if not 0 <= read.redirect_port <= 65_535:
        raise UsageError(f"{at(path, 'redirect_port')}: has to be a port")
    return read


def _args(value: Json, path: str) -> tuple[str, ...]:
    items = checked(value, list, "a list", path)
    return tuple(_argument(item, f"{path}[{index}]") for index, item in enumerate(items))


def _env(value: Json, path: str) -> dict[str, str]:
    return {name: _argument(item, at(path, name)) for name, item in mapping(value, path).items()}


def _argument(value: Json, path: str) -> str:
    """Text for a process; a number or a switch is what it looks like in YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(checked(value, str | int | float, "text or a number", path))  # type: ignore[arg-type]


def _default_to(value: Json, path: str) -> tuple[str, ...]:
    """Names, or names by kind as the reference implementation has them; only those of chats have a use."""
    return _names(value.get("chat", []), at(path, "chat")) if isinstance(value, dict) else _names(value, path)


def _names(value: Json, path: str) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(strings(value, path))


_COMMAND_READERS: Final[Mapping[str, Reader]] = {
    "args": _args,
    "env": _env,
    "headers": _env,
    "oauth": _sign_in,
    "box": read_box,
    "secrets": read_secrets,
}
_MEMBER_READERS: Final[dict[str, Any]] = {**_COMMAND_READERS, "default_to": _default_to}
