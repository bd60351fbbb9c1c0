"""`moot init --from FILE`: a space with the MCP servers of a client, in which the client has to propose."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from moot.box.box_support import why_not_confined
from moot.config.clients.client_file import ClientFile
from moot.config.clients.server_import import ImportedServer, import_servers
from moot.config.secrets.env_file import format_env_text
from moot.errors import UsageError
from moot.private_files import use_folder
from moot.protocol.operation import Json
from moot.resilience.atomic_file import write_atomically
from moot.up.imported_boxes import box_for, box_variables
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
            if boxes[server.name] != "off" and (variables := box_variables(entry)):
                entry["env"] = dict(variables)
        entries[server.name] = entry
    dumped = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=100)
    header = _HEADER.replace("@SPACE@", space).replace("[@SERVERS@]", json.dumps(list(entries)))
    return header + textwrap.indent(dumped, " " * 6)
