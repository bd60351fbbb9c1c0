"""`xprotocol-adapter validate`: finds everything that would keep a start from working.

Reading the file finds mistakes in it. Here the rest is checked: keys, chains, certificates, programs, ports.
If all of that is valid, MCP servers are contacted as well: which tools have no capability (D-61), which
contradict their own annotations (D-64), which have too poor a description to be found (XP 4.6).

Servers on this machine are contacted by default, for `LOCAL_SECONDS`; one that does not answer is a note,
since a configuration is often written on another machine. With --connect all servers are contacted, with
credentials and for as long as a start may take; then one that does not answer is a problem.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from moot.config.gateway_config import is_loopback, is_wildcard
from moot.errors import KeyFileError
from moot.protocol.operation import Json
from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings
from moot.xprotocol.adapter.config.config_loader import read_settings
from moot.xprotocol.adapter.config.config_problems import ConfigProblem, ConfigProblems
from moot.xprotocol.adapter.config.source_settings import McpSource
from moot.xprotocol.adapter.operations.source_inspection import SourceInspection, inspect_sources
from moot.xprotocol.adapter.trust_chain.own_chain import own_chain
from moot.xprotocol.identity import keyfile

# Which MCP servers are contacted: none, those on this machine, or all of them.
ServersToContact = Literal["none", "local", "all"]
# Enough for a server on a busy machine; not for `npx` if it has to download one first.
LOCAL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """The result of validation. Notes are given only where there are no problems."""

    settings: AdapterSettings | None
    problems: tuple[ConfigProblem, ...]
    notes: tuple[str, ...] = ()
    # None: no server was contacted.
    inspections: tuple[SourceInspection, ...] | None = None

    @property
    def is_valid(self) -> bool:
        return not self.problems

    def as_json(self) -> dict[str, Json]:
        answer: dict[str, Json] = {
            "ok": self.is_valid,
            "problems": [{"path": each.path, "message": each.message} for each in self.problems],
            "notes": list(self.notes),
        }
        if self.inspections is not None:
            answer["sources"] = [
                {"name": each.source.name, "ok": each.fault is None, "tools": each.tools}
                for each in self.inspections
            ]
        return answer


def validate_file(path: Path, *, environ: Mapping[str, str], now: float) -> ValidationReport:
    """Check everything but the servers; opens no connection, starts nothing, writes nothing."""
    loaded = read_settings(path, environ=environ)
    settings = loaded.settings
    if settings is None:
        return ValidationReport(None, loaded.problems)
    findings = ConfigProblems(list(loaded.problems), list(settings.notes))
    _check_identity(settings, findings, now)
    _check_sources(settings, findings, environ)
    _check_ports(settings, findings)
    return _report(settings, findings)


async def validate_config(
    path: Path, *, environ: Mapping[str, str], now: float, contact: ServersToContact = "local"
) -> ValidationReport:
    """`validate_file`, and what the MCP servers show that are to be asked, if the file itself is sound."""
    report = validate_file(path, environ=environ, now=now)
    if contact == "none" or not report.is_valid or report.settings is None:
        return report
    settings = report.settings
    findings = ConfigProblems(list(report.problems), list(report.notes))
    limits, sources = settings.limits, list(settings.mcp_sources)
    if contact == "local":
        sources = [source for source in sources if _is_local(source, environ)]
        limits = msgspec.structs.replace(
            limits,
            upstream_start_seconds=min(LOCAL_SECONDS, limits.upstream_start_seconds),
            upstream_call_seconds=min(LOCAL_SECONDS, limits.upstream_call_seconds),
        )
    inspections = await inspect_sources(sources, limits=limits, environ=environ, store=settings.store)
    places = {source.name: place for place, source in enumerate(settings.mcp_sources)}
    for inspection in inspections:
        path_of = f"mcp_sources[{places[inspection.source.name]}]"
        _check_inspection(inspection, path_of, findings, must_answer=contact == "all")
    for source in settings.mcp_sources:
        if source not in sources and source.url is not None:
            place = places[source.name]
            findings.add_note(f"mcp_sources[{place}]", f"{source.name} was not contacted; use --connect")
    return _report(settings, findings, tuple(inspections))


def _is_local(source: McpSource, environ: Mapping[str, str]) -> bool:
    """Whether a server is on this machine: its program is, or its address."""
    if source.url is not None:
        return is_loopback(urlsplit(source.url).hostname or "")
    return shutil.which(source.argv[0], path=_search_path(source.variables, environ)) is not None


def _report(
    settings: AdapterSettings,
    findings: ConfigProblems,
    inspections: tuple[SourceInspection, ...] | None = None,
) -> ValidationReport:
    problems = tuple(dict.fromkeys(findings.problems))
    return ValidationReport(settings, problems, () if problems else tuple(findings.notes), inspections)


def _check_identity(settings: AdapterSettings, findings: ConfigProblems, now: float) -> None:
    identity, path = settings.identity, "identity.key_file"
    if not os.path.lexists(identity.key_file):
        if identity.parent_delegation_event is not None:
            findings.add_problem(
                path,
                f"there is no key file {identity.key_file} for parent_delegation_event; "
                "run keygen, then register",
            )
        else:
            findings.add_note(path, f"{identity.key_file} is created at the first start")
        return
    try:
        own = keyfile.load(identity.key_file)
    except KeyFileError as fault:
        findings.add_problem(path, str(fault))
        return
    if own.key.text == identity.parent_key:
        findings.add_problem("identity.parent_key", "is the adapter's own key; it must be the key above it")
    if own.key.text in settings.revoked:
        findings.add_problem("revoked", "contains the adapter's own key; run keygen for another one")
    with findings.catching("identity.parent_delegation_event"):
        own_chain(settings, own, now=now)


def _check_sources(settings: AdapterSettings, findings: ConfigProblems, environ: Mapping[str, str]) -> None:
    for source in settings.mcp_sources:
        # By name: sources with a problem are not among these, so indexes may differ from the file's.
        path = f"mcp_sources ({source.name})"
        with findings.catching(f"{path}.auth"):
            source.tls()
        program = source.argv[0] if source.argv else None
        path_of = _search_path(source.variables, environ)
        if program is not None and shutil.which(program, path=path_of) is None:
            findings.add_note(path, f"the program {program} is not found on this machine")


def _search_path(listed: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    return listed.get("PATH", environ.get("PATH"))


def _check_ports(settings: AdapterSettings, findings: ConfigProblems) -> None:
    listener, discovery = settings.mcp_server, settings.discovery
    if listener is None or not listener.over_http or not listener.sse_port:
        return
    hosts = {listener.sse_host, discovery.well_known_host}
    if listener.sse_port == discovery.well_known_port and (len(hosts) == 1 or any(map(is_wildcard, hosts))):
        findings.add_problem("mcp_server.sse_port", "is also discovery.well_known_port; use another port")


def _check_inspection(
    inspection: SourceInspection, path: str, findings: ConfigProblems, *, must_answer: bool
) -> None:
    name = inspection.source.name
    if inspection.fault is not None or inspection.publication is None:
        if must_answer:
            findings.add_problem(path, f"{name}: {inspection.fault}")
        else:
            why = f"{inspection.fault}; see test-mcp --source {name}"
            findings.add_note(path, f"{name} could not be contacted: {why}")
        return
    publication = inspection.publication
    for refused in publication.refused:
        message = f"{refused.name!r} is not published: {refused.message}"
        if refused.reason == "capability_not_listed":
            # D-61.
            findings.add_problem(f"{path}.capabilities", message)
        else:
            findings.add_note(path, message)
    for notice in publication.warnings:
        findings.add_note(path, f"{notice.about}: {notice.message}")
    if not publication.contracts and not publication.refused:
        findings.add_note(path, f"{name} offers nothing that could be published")
