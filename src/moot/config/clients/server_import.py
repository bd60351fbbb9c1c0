"""A server of a client's file as an entry of `mcp_servers:`, with its secrets apart.

Variables and headers are hidden whole, because most of them are keys; arguments and addresses where they look
like one. A server that cannot be taken over is left out, and a note says why. Notes hold names, never values.

Clients on Windows have commands in `cmd /c`, as `npx.cmd`, with paths such as `C:\\Users\\me`. Moot runs on
Linux and macOS, Windows included only by WSL. What is started there under the same name is started so here;
that there are paths is told to whoever has to replace them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath
from typing import Any, Final, TypeGuard

from moot.config.clients.client_file import ClientFile, FoundServer
from moot.config.clients.json_comments import decode_text
from moot.config.clients.server_text import ServerText, TextContext
from moot.config.secrets.env_file import MAX_ENV_FILE_BYTES, is_variable_name, parse_env_text
from moot.errors import UsageError
from moot.protocol.operation import Json

_ADDRESSES: Final = ("url", "httpUrl", "serverUrl", "serverURL", "uri")
_HEADERS: Final = ("headers", "http_headers", "requestHeaders")
# Read, or of no meaning outside of the client.
_KNOWN: Final = frozenset(
    {"args", "bearer_token_env_var", "command", "cwd", "description", "disabled", "displayName", "enabled"}
    | {"env", "envFile", "env_http_headers", "env_vars", "gallery", "icon", "isActive", "name", "source"}
    | {"startup_timeout_ms", "startup_timeout_sec", "timeout", "title", "tool_timeout_sec", "transport"}
    | {"type", "version", *_ADDRESSES, *_HEADERS}
)
_DECIDED_IN_SPACE: Final = frozenset({"alwaysAllow", "autoApprove", "trust", "default_tools_approval_mode"})
_TOOL_FILTERS: Final = frozenset(
    {
        "disabledTools",
        "disabled_tools",
        "enabled_tools",
        "enabledTools",
        "excludeTools",
        "includeTools",
        "tools",
    }
)
_SIGN_IN: Final = frozenset(
    {"auth", "authProviderType", "oauth", "oauth_resource", "scopes", "headersHelper", "http_headers_helper"}
)
_UNFIT_IN_NAME = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)
_NAME_CHARS: Final = 64
_OPTION = re.compile(r"(--?[A-Za-z][\w.-]*)=(.*)", re.DOTALL | re.ASCII)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.+)", re.DOTALL | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedServer:
    """A server that can be put into a space."""

    name: str
    # What stands under its name in `mcp_servers:`.
    settings: Mapping[str, Json]
    # For its file of variables.
    secrets: Mapping[str, str] = field(repr=False)
    # Variables that somebody has to fill in there, and what they are.
    wanted: Mapping[str, str]


class _LeftOut(Exception):
    """This server is not taken over; the text says why."""


def import_servers(
    file: ClientFile, folder: Path, *, reserved: Iterable[str], environ: Container[str]
) -> tuple[list[ImportedServer], list[str]]:
    """The servers of a file for a space in `folder`, and notes. Names are valid and unique there.

    `environ` tells which variables need no note, because they are set.
    """
    notes = list(file.notes)
    taken = {name.casefold() for name in reserved}
    seen: set[str] = set()
    imported: list[ImportedServer] = []
    for found in file.servers:
        shown = _printable(found.name)
        # The same server is often configured for several projects.
        same = json.dumps([found.name, found.entry], sort_keys=True, default=str)
        if same in seen:
            notes.append(f"{shown}: configured for several projects in the same way; taken over once")
            continue
        seen.add(same)
        try:
            server, own = _import(found, file, folder, taken, environ)
        except _LeftOut as why:
            notes.append(f"{shown}: left out: {why}")
            continue
        if server.name != found.name:
            notes.append(f"{shown}: is called {server.name} here")
        notes += [f"{server.name}: {note}" for note in own]
        imported.append(server)
    return imported, notes


def _import(
    found: FoundServer, file: ClientFile, folder: Path, taken: set[str], environ: Container[str]
) -> tuple[ImportedServer, list[str]]:
    entry = found.entry
    if not isinstance(entry, dict):
        raise _LeftOut("it is no object with a command or a url")
    if found.is_disabled or entry.get("disabled") is True or _is_off(entry):
        raise _LeftOut("it is disabled there")
    if not _is_encodable(entry):
        raise _LeftOut("it holds characters that are no text")
    notes: list[str] = []
    context = TextContext(
        workspace=found.project,
        folder=folder,
        inputs=file.inputs,
        has_bare_variables=file.client == "gemini",
        environ=environ,
    )
    command = _flattened(entry)
    text = ServerText(context=context, taken=set(_mapping(command.get("env"))))
    address = next((command[key] for key in _ADDRESSES if isinstance(command.get(key), str)), None)
    if isinstance(command.get("command"), str) and command["command"].strip():
        settings = _stdio(command, text, found, file, notes)
    elif address:
        settings = _remote(command, address, text, notes)
    elif "settings" in entry or entry.get("source") == "extension":
        raise _LeftOut("an extension of the client brings it; give its command here")
    else:
        raise _LeftOut("it has neither a command nor a url")
    notes += _notes_on(entry)
    if text.unknown:
        settings["auto_start"] = False
        those = ", ".join(sorted({f"${{{_printable(inside)}}}" for inside in text.unknown}))
        notes.append(
            f"{those} has no meaning here: replace it in moot.yaml and remove auto_start: false there"
        )
    name = _unique_name(found.name, taken)
    if text.wanted:
        asked = ", ".join(text.wanted)
        notes.append(f"needs {asked}: write it into .moot/secrets/{name}.env, or export it before `moot up`")
    server = ImportedServer(name=name, settings=settings, secrets=text.secrets, wanted=text.wanted)
    return server, notes


def _stdio(
    entry: Mapping[str, Any], text: ServerText, found: FoundServer, file: ClientFile, notes: list[str]
) -> dict[str, Json]:
    command = entry["command"].strip()
    args = [_plain(arg) for arg in _list(entry.get("args"))]
    if None in args:
        raise _LeftOut("its args are no list of texts")
    written = [command, *(arg for arg in args if arg is not None)]
    command, words = for_this_system(command, written[1:])
    if [command, *words] != written:
        notes.append(f"is written for Windows: here it starts {_printable(command)}")
    if any(is_windows_path(word) for word in (command, *words)):
        notes.append("has a path on Windows: write the one on this machine into moot.yaml")
    if (Path(command).name == "moot" and words[:1] == ["mcp"]) or words[:3] == ["-m", "moot.cli", "mcp"]:
        raise _LeftOut("it is Moot itself")
    if command.startswith("/") and not Path(command).exists():
        notes.append(f"starts {_printable(command)}, which is not here: correct it in moot.yaml")
    env = _env(entry, text, file, notes)
    settings: dict[str, Json] = {"command": text.show(command, "COMMAND")}
    if words:
        settings["args"] = list(_arguments(words, text))
    if env:
        settings["env"] = env
    cwd = entry.get("cwd")
    if isinstance(cwd, str) and cwd:
        shown = text.show(cwd, "CWD")
        is_relative = not shown.startswith(("/", "${", "~"))
        settings["cwd"] = f"{text.place(found.project)}/{shown}" if is_relative else _home(shown)
    elif found.project is not None and found.project != text.context.folder:
        # Where the client would have started it.
        settings["cwd"] = text.place(found.project)
    return settings


def _arguments(words: list[str], text: ServerText) -> Iterator[str]:
    before = ""
    for number, word in enumerate(words, 1):
        option = _OPTION.fullmatch(word)
        assignment = _ASSIGNMENT.fullmatch(word) if before in ("-e", "--env") else None
        if assignment is not None:
            # docker run -e NAME=VALUE
            yield f"{assignment[1]}={text.hide(assignment[2], assignment[1])}"
        elif option is not None:
            yield f"{option[1]}={text.show(option[2], f'ARG_{option[1]}', called=option[1])}"
        elif word.startswith("-") and " " not in word:
            yield text.show(word, f"ARG_{number}")
        else:
            called = before if before.startswith("-") else ""
            yield text.show(word, f"ARG_{called or number}", called=called)
        before = word


def _env(entry: Mapping[str, Any], text: ServerText, file: ClientFile, notes: list[str]) -> dict[str, Json]:
    """Variables whose values refer to others; the values themselves are in `text.secrets`."""
    if isinstance(entry.get("envFile"), str):
        _read_env_file(entry["envFile"], text, file, notes)
    shown: dict[str, Json] = {}
    for name, value in _mapping(entry.get("env")).items():
        plain = _plain(value)
        if not is_variable_name(name) or (plain is None and value is not None):
            notes.append(f"env.{_printable(name)}: is no variable with a text; left out")
        elif plain is not None:
            if "${" not in plain and not (text.context.has_bare_variables and "$" in plain):
                text.secrets[name] = plain
                continue
            shown[name] = text.hide(plain, name)
    for listed in _list(entry.get("env_vars")):
        variable = listed.get("name") if isinstance(listed, dict) else listed
        if _is_plain_variable(variable):
            shown[variable] = text.variable(variable)
    return shown


def _read_env_file(path: str, text: ServerText, file: ClientFile, notes: list[str]) -> None:
    folder = text.context.workspace or file.path.parent
    # Only places: a file is read now, whatever the environment of `moot up` will be.
    place = text.show(path, "ENV_FILE").replace("${FOLDER}", str(text.context.folder))
    place = place.replace("${env:HOME}", str(Path.home()))
    source = folder / Path(place).expanduser()
    shown = _printable(path)
    try:
        with source.open("rb") as opened:
            found = parse_env_text(decode_text(opened.read(MAX_ENV_FILE_BYTES)))
    except OSError as fault:
        notes.append(f"envFile {shown} cannot be read ({fault.strerror}): its variables are missing")
    except UsageError as fault:
        notes.append(f"envFile {shown}: {fault}: its variables are missing")
    else:
        text.taken.update(found)
        text.secrets.update(found)
        notes.append(f"envFile {shown} was copied; later changes there have no effect here")


def _remote(entry: Mapping[str, Any], address: str, text: ServerText, notes: list[str]) -> dict[str, Json]:
    if not re.match(r"https?://|\$\{", address, re.IGNORECASE):
        raise _LeftOut("its address begins with neither http:// nor https://")
    settings: dict[str, Json] = {"url": text.show(address, "SERVER_URL")}
    kind = str(entry.get("type", entry.get("transport", ""))).lower()
    if kind == "sse":
        settings["transport"] = "sse"
    elif kind in ("ws", "websocket"):
        raise _LeftOut("it is reached by WebSocket, which MCP does not have")
    headers: dict[str, Json] = {}
    for key in _HEADERS:
        for name, value in _mapping(entry.get(key)).items():
            plain = _plain(value)
            if plain is None:
                notes.append(f"{key}.{_printable(name)}: is no text; left out")
            else:
                headers[name] = text.hide(plain, f"HEADER_{name}")
    for name, variable in _mapping(entry.get("env_http_headers")).items():
        if _is_plain_variable(variable):
            headers[name] = text.variable(variable)
    variable = entry.get("bearer_token_env_var")
    if _is_plain_variable(variable):
        headers["Authorization"] = f"Bearer {text.variable(variable)}"
    if headers:
        settings["headers"] = headers
    return settings


def _notes_on(entry: Mapping[str, Any]) -> Iterator[str]:
    fields = set(entry) - _KNOWN
    if decided := sorted(name for name in fields & _DECIDED_IN_SPACE if entry[name]):
        yield f"{', '.join(decided)}: not taken over; who may call what is decided in the space"
    if filters := sorted(fields & _TOOL_FILTERS):
        yield f"{', '.join(filters)}: not taken over; all its tools are there, each as a proposal"
    if sign_in := sorted(fields & _SIGN_IN):
        yield f"{', '.join(sign_in)}: not taken over; Moot signs in to servers with headers only"
    if unknown := sorted(fields - _DECIDED_IN_SPACE - _TOOL_FILTERS - _SIGN_IN):
        yield f"{', '.join(map(_printable, unknown))}: not known here, ignored"


def _flattened(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """With `command` as a text: Zed had an object there, and some clients have a list."""
    command = entry.get("command")
    if isinstance(command, dict):
        return {
            **entry,
            "command": command.get("path"),
            "args": command.get("args"),
            "env": command.get("env"),
        }
    if isinstance(command, list) and command:
        return {**entry, "command": command[0], "args": [*command[1:], *_list(entry.get("args"))]}
    return entry


def _is_off(entry: Mapping[str, Any]) -> bool:
    return entry.get("enabled") is False or entry.get("isActive") is False


def _unique_name(wanted: str, taken: set[str]) -> str:
    """A participant's name; also unique where files are found whatever their case."""
    name = _UNFIT_IN_NAME.sub("-", wanted).strip("-._")[:_NAME_CHARS].rstrip("-._") or "server"
    unique, number = name, 2
    while unique.casefold() in taken:
        suffix = f"-{number}"
        unique, number = name[: _NAME_CHARS - len(suffix)] + suffix, number + 1
    taken.add(unique.casefold())
    return unique


def _plain(value: Json) -> str | None:
    """Text for a process; None if it is none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _is_encodable(entry: Mapping[str, Any]) -> bool:
    try:
        text = json.dumps(entry, ensure_ascii=False, default=str)
        text.encode()
    except (UnicodeEncodeError, ValueError):
        return False
    return "\\u0000" not in text


def _is_plain_variable(name: Json) -> TypeGuard[str]:
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is not None


def _home(path: str) -> str:
    return path.replace("~", "${env:HOME}", 1) if path == "~" or path.startswith("~/") else path


def _printable(text: str) -> str:
    shown = "".join(character if character.isprintable() else "�" for character in text)
    return shown if len(shown) <= 80 else f"{shown[:80]}…"


def _mapping(value: Json) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Any]:
    return value if isinstance(value, list) else []


_SHELLS: Final = frozenset({"cmd", "cmd.exe"})
_SHELL_OPTION = re.compile(r"/[A-Za-z]")
# Programs that are called the same everywhere, and on Windows are often named with their place or ending.
_LAUNCHERS: Final = frozenset(
    {"bun", "bunx", "deno", "docker", "node", "npm", "npx", "pnpm", "python", "uv", "uvx"}
)
_ENDINGS: Final = frozenset({"", ".bat", ".cmd", ".exe"})
_PATH = re.compile(r"[A-Za-z]:[\\/]")


def for_this_system(command: str, words: list[str]) -> tuple[str, list[str]]:
    """The command and its arguments without what only Windows needs."""
    if PureWindowsPath(command).name.lower() in _SHELLS:
        rest = list(words)
        while rest and _SHELL_OPTION.fullmatch(rest[0]):
            rest.pop(0)
        if rest and len(rest) < len(words):
            command, words = rest[0], rest[1:]
    place = PureWindowsPath(command)
    if place.suffix.lower() in _ENDINGS and place.stem.lower() in _LAUNCHERS and "/" not in command:
        command = place.stem.lower()
    return command, words


def is_windows_path(word: str) -> bool:
    """Whether a word is a path on Windows, or an option with one."""
    return _PATH.match(word.rpartition("=")[2]) is not None
