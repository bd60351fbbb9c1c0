"""What is verified: a configuration with the rules of its approvers, and questions about both."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from moot.config.configuration import Configuration, McpServerConfig, MemberConfig, SpaceSettings
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, Rights, read_capability
from moot.protocol.patterns.covers import covered_by, overlaps
from moot.protocol.strict_json import encode
from moot.space.config import ParticipantConfig
from moot.trust.rules.rule import Rule

Status = Literal["met", "not_met", "not_applicable", "not_checked"]

EVERYTHING: Final = read_capability({"kind": "*"})
ANY_CALL: Final = read_capability({"kind": "mcp/request", "payload": {"method": "tools/call"}})
# A token that is older than this should be another one by now: what most audits ask for.
TOKEN_DAYS: Final = 90


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a row stands: with the evidence, or the counterexample and what to change."""

    status: Status
    why: str
    change: str = ""


def met(why: str) -> Verdict:
    return Verdict("met", why)


def none(why: str) -> Verdict:
    return Verdict("not_applicable", why)


def judge(faults: Iterable[str], *, change: str, otherwise: str) -> Verdict:
    """Not met with the faults, if there is one; else met."""
    found = list(faults)
    return Verdict("not_met", "; ".join(found[:5]), change) if found else met(otherwise)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A configuration as it was read, its file, and the rules that decide beside people."""

    configuration: Configuration
    file: Path | None = None
    rules: Sequence[Rule] = ()
    # By the wall clock.
    now: float = field(default_factory=time.time)

    @property
    def spaces(self) -> Mapping[str, SpaceSettings]:
        return self.configuration.spaces

    def servers(self) -> Iterator[tuple[str, McpServerConfig]]:
        """MCP servers that are bridged, by "space/name"."""
        for space, settings in self.spaces.items():
            for name, member in settings.members.items():
                if member.mcp_server is not None:
                    yield f"{space}/{name}", member.mcp_server

    def local_servers(self) -> Iterator[tuple[str, McpServerConfig]]:
        return ((name, server) for name, server in self.servers() if server.command is not None)

    def agents(self) -> Iterator[tuple[str, str, ParticipantConfig]]:
        """Everybody but those who may do everything and are started by nobody: space, name, rights.

        Whether a participant is a person stands nowhere; who may do everything decides for the others. What
        applies the rules (`moot rules run`) is no agent: its rules are what is asked about.
        """
        for space, settings in self.spaces.items():
            for name, participant in settings.config.participants.items():
                member = settings.members.get(name)
                if member is not None and _is_approver(member):
                    continue
                is_started = member is not None and bool(member.command or member.mcp_server)
                if is_started or not covered_by(EVERYTHING, participant.capabilities):
                    yield space, name, participant

    def overseers(self, space: str) -> list[str]:
        """Who may do everything and is started by nobody."""
        agents = {name for of, name, _ in self.agents() if of == space}
        agents |= {name for name, member in self.spaces[space].members.items() if _is_approver(member)}
        return [name for name in self.spaces[space].config.participants if name not in agents]

    def free_callers(self) -> Iterator[str]:
        """Agents that may call any tool, or any tool of one server, with nobody's approval."""
        for space, name, participant in self.agents():
            hosts = [
                each for each, member in self.spaces[space].members.items() if member.mcp_server is not None
            ]
            if covered_by(ANY_CALL, participant.capabilities):
                yield f"{space}/{name} may call every tool without anybody"
                continue
            for host in hosts:
                if covered_by(_calls_to(host), participant.capabilities):
                    yield f"{space}/{name} may call every tool of {host} without anybody"

    def unbound_callers(self) -> Iterator[str]:
        """Agents that may call some tool with whatever arguments."""
        for space, name, participant in self.agents():
            for capability in participant.capabilities:
                if overlaps(capability, ANY_CALL) and not _limits_arguments(capability):
                    yield f"{space}/{name} holds {encode(capability.view('mew')[0]).decode()}"

    def who_may(self, *kinds: str) -> Iterator[str]:
        """Agents that may send a message of one of these kinds."""
        for space, name, participant in self.agents():
            rights = Rights(participant.capabilities)
            held = [kind for kind in kinds if rights.allow_some(kind)]
            if held:
                yield f"{space}/{name} may send {', '.join(held)}"

    def old_tokens(self) -> Iterator[str]:
        """Tokens that stand in files for longer than they should, and those whose age nobody knows."""
        for space, settings in self.spaces.items():
            for name, file in settings.token_files.items():
                if file.exists() and self.now - file.stat().st_mtime > TOKEN_DAYS * 86_400:
                    yield f"the token of {space}/{name} is older than {TOKEN_DAYS} days"
            for grant in settings.tokens.values():
                if grant.participant not in settings.token_files:
                    yield f"the token of {space}/{grant.participant} is in the configuration and never ends"

    def is_file_open(self) -> bool:
        """Whether others may read the configuration."""
        return self.file is not None and bool(self.file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def _is_approver(member: MemberConfig) -> bool:
    return member.args[:2] == ("rules", "run")


def _calls_to(host: str) -> Capability:
    return read_capability({"kind": "mcp/request", "to": [host], "payload": {"method": "tools/call"}})


def _limits_arguments(capability: Capability) -> bool:
    def inside(value: Json) -> bool:
        params: Json = value.get("payload", {}).get("params", {}) if isinstance(value, dict) else {}
        return isinstance(params, dict) and any(str(key).startswith("arguments") for key in params)

    return all(inside(shown) for shown in capability.view("mew"))
