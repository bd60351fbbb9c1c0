"""`moot init --from FILE`: a space with the MCP servers of a client, in which the client has to propose."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from moot.box.box_support import why_not_confined
from moot.config.clients.client_file import ClientFile
from moot.config.clients.server_import import ImportedServer, import_servers
from moot.config.env_file import format_env_text
from moot.errors import UsageError
from moot.private_files import use_folder
from moot.protocol.operation import Json
from moot.resilience.atomic_file import write_atomically
from moot.up.scaffold import (
    CONFIGURATION,
    check_free,
    check_space_name,
    default_rules,
    ignore_private_files,
    rules_path,
    write_all,
)

AGENT: Final = "agent"
PERSON: Final = "you"
# Who cannot be called so: people and the client here, and what every space has.
_RESERVED: Final = (AGENT, PERSON, "approver", "gateway", "system")
_SECRETS: Final = Path(".moot/secrets")
_HEADER: Final = """\
# MCP servers behind approval. The MCP client takes part as `agent`: it sees all tools, and each call that it
# makes is a proposal; nothing runs until you approve it.
#
#   moot up       runs it
#   moot join     in another terminal, in this folder: see what is proposed, and decide
#
# Keys are not in this file: .moot/secrets/NAME.env has the variables of the server NAME. Git ignores .moot.
# Each server reaches only what its `box` lists, unless that is off: docs/how-to/bridge-an-mcp-server.md.
# Every setting: docs/how-to/set-up-a-space.md and docs/how-to/run-a-space.md of Moot.

spaces:
  @SPACE@:
    title: Tools behind approval
    default_participant: you

    participants:
      you:
        capabilities: [{kind: "*"}]

      # The MCP client: `moot mcp --as agent --print-config CLIENT` prints what it needs.
      agent:
        profile: proposal-only
        capabilities:
          - {kind: mcp/withdraw}
        # When you have seen enough, let it call a tool by itself:
        #   moot member grant agent mcp/request:tools/call:TOOL

      # Says where the values of each call came from, and approves what you asked for yourself; calls that
      # others' words steer, and what can destroy something, are yours (.moot/trust/@SPACE@/rules.yaml).
      # Suggests a rule when you have approved ten calls of a kind (`moot rules suggestions`), and applies
      # those that you accept. It cannot approve more than this, and grants nothing.
      approver:
        capabilities:
          - {kind: mcp/request, to: [@SERVERS@], payload: {method: tools/call}}
          - {kind: mcp/request, payload: {method: tools/list}}
          - {kind: [mcp/reject, mcp/response, chat, trust/suggestion, trust/rule, trust/dismiss]}
          - {kind: moot/origins}
        command: moot
        args: [rules, run]

    mcp_servers:
"""


_READS: Final = """\
          # These say that they only read (readOnlyHint), and are called without asking.
"""


# `moot init --from`: the box of each imported server, by what is known of it and the paths that it names.

# What fetches a server before it starts it, and from where.
_FETCHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "npx": ("registry.npmjs.org",),
    "bunx": ("registry.npmjs.org",),
    "uvx": ("pypi.org", "files.pythonhosted.org"),
    "pipx": ("pypi.org", "files.pythonhosted.org"),
}
# Servers that need no host, or only these, by a part of their package's name.
_HOSTS: Final[Mapping[str, tuple[str, ...]]] = {
    "server-filesystem": (),
    "server-memory": (),
    "server-sequential-thinking": (),
    "server-everything": (),
    "server-git": (),
    "server-time": (),
    "server-sqlite": (),
    "server-github": ("api.github.com",),
    "server-gitlab": ("gitlab.com",),
    "server-slack": ("slack.com",),
    "server-brave-search": ("api.search.brave.com",),
    "server-google-maps": ("maps.googleapis.com",),
    "server-sentry": ("sentry.io",),
}
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
_BROWSERS = re.compile(r"puppeteer|playwright|chrome|browser")
_LOCAL_ADDRESS = re.compile(
    r"://([^/@]*@)?(localhost|127\.|10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.|\[::1\])"
)
_SCRIPTS: Final = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".sh"})
_PROJECT_FILES: Final = ("package.json", "pyproject.toml", "requirements.txt", ".git")
_PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")


def box_for(
    settings: Mapping[str, Json], folder: Path, *, missing: str | None, environ: Container[str]
) -> tuple[Json, str | None]:
    """What stands under `box` for this server, and a note if it is not confined. None: it runs elsewhere.

    `missing`: why there are no boxes on this machine, if there are none.
    """
    if "command" not in settings:
        return None, None
    args = settings.get("args")
    words = [str(each) for each in args] if isinstance(args, list) else []
    program = Path(str(settings["command"])).name
    if missing is None:
        missing = _unfit(program, words)
    hosts = _hosts(program, words)
    if missing is None and hosts and any(name in environ for name in _PROXIES):
        missing = "this machine reaches other hosts by a proxy, which a box cannot use"
    if missing is not None:
        return "off", f"not confined here: {missing}"
    box: dict[str, Json] = {}
    if read := _projects([str(settings["command"]), *words], folder):
        box["read"] = list(read)
    if write := _folders([*words, str(settings.get("cwd", ""))], folder):
        box["write"] = list(write)
    if hosts:
        box["network"] = list(hosts)
    return box or "on", None


def _unfit(program: str, words: list[str]) -> str | None:
    if program in _CONTAINERS:
        return f"{program} has a container of its own"
    if any(_BROWSERS.search(word) for word in words):
        return "it starts a browser"
    if any(_LOCAL_ADDRESS.search(word) for word in words):
        return "it reaches an address in your own network; with that under box: network it can be"
    return None


def _hosts(program: str, words: list[str]) -> tuple[str, ...]:
    # With or without a version: `@scope/server-git@1.2`.
    names = [program, *(re.sub(r"(?<=\w)@.*", "", word) for word in words[:6])]
    known = [hosts for each in names for name, hosts in _HOSTS.items() if each.endswith(name)]
    # Of others nobody knows: all public hosts, and still none of your network.
    return (*_FETCHERS.get(program, ()), *known[0]) if known else ("*",)


def _projects(words: list[str], folder: Path) -> list[str]:
    """The folders of programs that are scripts: what they import is beside them."""
    found: dict[str, None] = {}
    for word in words:
        path = _path(word, folder)
        if path is None or path.suffix not in _SCRIPTS or not path.is_file():
            continue
        around = [each for each in path.parents if not Path.home().is_relative_to(each)]
        marked = [each for each in around if any((each / name).exists() for name in _PROJECT_FILES)]
        if found_here := (marked or around)[:1]:
            found[str(found_here[0])] = None
    return list(found)


def _path(word: str, folder: Path) -> Path | None:
    filled = word.replace("${FOLDER}", str(folder)).replace("${env:HOME}", str(Path.home()))
    path = Path(filled).expanduser()
    return path if path.is_absolute() and "${" not in filled else None


def _folders(words: list[str], folder: Path) -> list[str]:
    """The folders that the arguments name, or in which the files are that they name."""
    found: dict[str, None] = {}
    for word in words:
        shown = word.partition("=")[2] if word.startswith("-") and "=" in word else word
        path = _path(shown, folder)
        if path is None:
            continue
        if path.is_dir() and path != Path("/"):
            found[shown] = None
        elif path.is_file() and path.suffix in (".db", ".sqlite", ".sqlite3", ".json", ".jsonl"):
            # A database has files beside it.
            found[str(Path(shown).parent)] = None
    return list(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSpace:
    """What was made: files relative to the folder, the names of the servers, and notes without secrets."""

    files: list[Path]
    servers: list[str]
    notes: list[str]


def make_imported_space(
    file: ClientFile, folder: Path, space: str, *, environ: Container[str]
) -> ImportedSpace:
    """Write a moot.yaml, and a file of variables for each server that has some. Overwrites nothing."""
    check_space_name(space)
    servers, notes = import_servers(file, folder.absolute(), reserved=_RESERVED, environ=environ)
    if not servers:
        listed = "".join(f"\n  {note}" for note in notes)
        raise UsageError(f"{file.path}: holds no server that can be taken over{listed}")
    missing = why_not_confined()
    boxes: dict[str, Json] = {}
    for server in servers:
        box, note = box_for(server.settings, folder.absolute(), missing=missing, environ=environ)
        if box is not None:
            boxes[server.name] = box
        notes += [] if note is None else [f"{server.name}: {note}"]
    texts = {_env_path(server): _env_text(server) for server in servers if server.secrets or server.wanted}
    texts[rules_path(space)] = default_rules({})
    check_free(folder, [*texts, CONFIGURATION])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ignore_private_files(folder)
        use_folder(folder / _SECRETS.parent, option="another DIR")
        if len(texts) > 1:
            use_folder(folder / _SECRETS, what="the folder", option="another DIR")
            # Also where the folder of the space is not the top of a repository.
            write_atomically(folder / _SECRETS / ".gitignore", b"*\n", mode=0o644)
        write_all(folder, texts | {CONFIGURATION: _yaml(servers, space, boxes)}, private=texts)
    except OSError as fault:
        raise UsageError(
            f"{folder} cannot be written: {fault.strerror or fault}. Choose a folder that you can write:"
            f" moot init --from FILE DIR"
        ) from None
    return ImportedSpace(
        files=[CONFIGURATION, *texts], servers=[server.name for server in servers], notes=notes
    )


def allow_reads(folder: Path, tools: Mapping[str, list[str]]) -> None:
    """Let the client call these tools by itself, by server: in the moot.yaml that was just made."""
    file = folder / CONFIGURATION
    lines = [_READS]
    for server, names in tools.items():
        call = f"payload: {{method: tools/call, params: {{name: {json.dumps(names)}}}}}"
        lines.append(f"          - {{kind: mcp/request, to: [{json.dumps(server)}], {call}}}\n")
    anchor = "          - {kind: mcp/withdraw}\n"
    text = file.read_text("utf-8").replace(anchor, anchor + "".join(lines), 1)
    write_atomically(file, text.encode(), mode=0o644)


def describe_tools(folder: Path, space: str, tools: Mapping[str, Json]) -> None:
    """Write what tools do, in the rules file that was just made."""
    write_atomically(folder / rules_path(space), default_rules(tools).encode())


def _env_path(server: ImportedServer) -> Path:
    return _SECRETS / f"{server.name}.env"


def _env_text(server: ImportedServer) -> str:
    lines = ["# Variables of this MCP server, one NAME=VALUE a line. Read whenever it is started.\n"]
    for name, description in server.wanted.items():
        shown = "".join(character for character in description if character.isprintable())
        lines.append(f"# to be filled in{f': {shown}' if shown else ''}\n# {name}=\n")
    return "".join(lines) + format_env_text(server.secrets)


def _yaml(servers: list[ImportedServer], space: str, boxes: Mapping[str, Json]) -> str:
    entries = {}
    for server in servers:
        entry = dict(server.settings)
        if server.secrets or server.wanted:
            entry["env_file"] = str(_env_path(server))
        if server.name in boxes:
            entry["box"] = boxes[server.name]
        entries[server.name] = entry
    dumped = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=100)
    header = _HEADER.replace("@SPACE@", space).replace("[@SERVERS@]", json.dumps(list(entries)))
    return header + textwrap.indent(dumped, " " * 6)
