"""`xprotocol-adapter validate`: everything that would keep a start from working, before it is tried.

Reading the file finds what is wrong in it. Here is what it says about the world: keys, chains, certificates,
programs, ports. If all that is sound, the MCP servers are asked as well: which tools find no capability
(D-61), which contradict their own annotations (D-64), which are described too poorly to be found (XP 4.6).

Asking one on this machine is cheap, so that is done, for `NEAR_SECONDS`; one that does not answer is a note,
since a configuration is often written where its servers are not. Asking all of them, with credentials and for
as long as a start may take, is for who wants to know: then one that does not answer is a problem.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from moot.adapter.config.adapter_settings import AdapterSettings
from moot.adapter.config.config_loader import read_settings
from moot.adapter.config.config_problems import ConfigProblem, ConfigProblems
from moot.adapter.config.source_settings import McpSource
from moot.adapter.operations.source_inspection import SourceInspection, inspect
from moot.adapter.trust_chain.chain_walk import own_chain
from moot.config.gateway_config import is_loopback, is_wildcard
from moot.errors import KeyFileError
from moot.identity import keyfile
from moot.offers.vector_search import SearchStatus, check_search, search_status
from moot.protocol.operation import Json

# Which MCP servers are asked: none, those on this machine, or all of them.
Asked = Literal["none", "near", "all"]
# A server on this machine has greeted by then, on a busy one too; `npx` has not if it has to fetch it first.
NEAR_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """What validating found. Notes only where nothing is wrong: first things first."""

    settings: AdapterSettings | None
    problems: tuple[ConfigProblem, ...]
    notes: tuple[str, ...] = ()
    # None: the sources were not asked.
    inspections: tuple[SourceInspection, ...] | None = None
    # None: it was not looked at.
    search: SearchStatus | None = None

    @property
    def sound(self) -> bool:
        return not self.problems

    def as_json(self) -> dict[str, Json]:
        answer: dict[str, Json] = {
            "ok": self.sound,
            "problems": [{"path": each.path, "message": each.message} for each in self.problems],
            "notes": list(self.notes),
        }
        if self.search is not None:
            answer["search"] = self.search.as_json()
        if self.inspections is not None:
            answer["sources"] = [
                {"name": each.source.name, "ok": each.fault is None, "tools": each.tools}
                for each in self.inspections
            ]
        return answer


def check_file(path: Path, *, environ: Mapping[str, str], now: float) -> ValidationReport:
    """Everything but the servers themselves; opens no connection, starts nothing, writes nothing."""
    loaded = read_settings(path, environ=environ)
    settings = loaded.settings
    if settings is None:
        return ValidationReport(None, loaded.problems)
    findings = ConfigProblems(list(loaded.problems), list(settings.notes))
    _check_identity(settings, findings, now)
    _check_sources(settings, findings, environ)
    _check_ports(settings, findings)
    return replace(_report(settings, findings), search=search_status(settings.search))


async def check(
    path: Path, *, environ: Mapping[str, str], now: float, asked: Asked = "near"
) -> ValidationReport:
    """`check_file`, and what the MCP servers show that are to be asked, if the file itself is sound."""
    report = check_file(path, environ=environ, now=now)
    if asked == "none" or not report.sound or report.settings is None:
        return report
    settings = report.settings
    findings = ConfigProblems(list(report.problems), list(report.notes))
    limits, sources = settings.limits, list(settings.mcp_sources)
    if asked == "near":
        sources = [source for source in sources if _is_near(source, environ)]
        limits = msgspec.structs.replace(
            limits,
            upstream_start_seconds=min(NEAR_SECONDS, limits.upstream_start_seconds),
            upstream_call_seconds=min(NEAR_SECONDS, limits.upstream_call_seconds),
        )
    inspections = await inspect(sources, limits=limits, environ=environ, store=settings.store)
    places = {source.name: place for place, source in enumerate(settings.mcp_sources)}
    for inspection in inspections:
        path_of = f"mcp_sources[{places[inspection.source.name]}]"
        _judge(inspection, path_of, findings, has_to_answer=asked == "all")
    for source in settings.mcp_sources:
        if source not in sources and source.url is not None:
            place = places[source.name]
            findings.note(f"mcp_sources[{place}]", f"{source.name} was not asked; --connect does")
    return replace(
        _report(settings, findings, tuple(inspections)), search=await check_search(settings.search)
    )


def _is_near(source: McpSource, environ: Mapping[str, str]) -> bool:
    """Whether a server is on this machine: its program is, or its address."""
    if source.url is not None:
        return is_loopback(urlsplit(source.url).hostname or "")
    return shutil.which(source.argv[0], path=_search_path(source.env, environ)) is not None


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
            findings.problem(
                path,
                f"there is no key file {identity.key_file} that parent_delegation_event could be about; "
                "run keygen, then register",
            )
        else:
            findings.note(path, f"{identity.key_file} is made on the first start")
        return
    try:
        own = keyfile.load(identity.key_file)
    except KeyFileError as fault:
        findings.problem(path, str(fault))
        return
    if own.key.text == identity.parent_key:
        findings.problem("identity.parent_key", "is the adapter's own key; it names the one above it")
    if own.key.text in settings.revoked:
        findings.problem("revoked", "holds the adapter's own key; run keygen for another one")
    with findings.caught("identity.parent_delegation_event"):
        own_chain(settings, own, now=now)


def _check_sources(settings: AdapterSettings, findings: ConfigProblems, environ: Mapping[str, str]) -> None:
    for source in settings.mcp_sources:
        # By name: sources with a problem are not among these, so places may differ from the file's.
        path = f"mcp_sources ({source.name})"
        with findings.caught(f"{path}.auth"):
            source.tls()
        program = source.argv[0] if source.argv else None
        if program is not None and shutil.which(program, path=_search_path(source.env, environ)) is None:
            findings.note(path, f"the program {program} is not found on this machine")


def _search_path(listed: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    return listed.get("PATH", environ.get("PATH"))


def _check_ports(settings: AdapterSettings, findings: ConfigProblems) -> None:
    listener, discovery = settings.mcp_server, settings.discovery
    if listener is None or not listener.over_http or not listener.sse_port:
        return
    hosts = {listener.sse_host, discovery.well_known_host}
    if listener.sse_port == discovery.well_known_port and (len(hosts) == 1 or any(map(is_wildcard, hosts))):
        findings.problem("mcp_server.sse_port", "is discovery.well_known_port, too; take another one")


def _judge(inspection: SourceInspection, path: str, findings: ConfigProblems, *, has_to_answer: bool) -> None:
    name = inspection.source.name
    if inspection.fault is not None or inspection.publication is None:
        if has_to_answer:
            findings.problem(path, f"{name}: {inspection.fault}")
        else:
            why = f"{inspection.fault}; see test-mcp --source {name}"
            findings.note(path, f"{name} could not be asked: {why}")
        return
    publication = inspection.publication
    for refused in publication.refused:
        words = f"{refused.name!r} is not published: {refused.message}"
        if refused.reason == "capability_not_listed":
            # D-61.
            findings.problem(f"{path}.capabilities", words)
        else:
            findings.note(path, words)
    for notice in publication.warnings:
        findings.note(path, f"{notice.about}: {notice.message}")
    if not publication.contracts and not publication.refused:
        findings.note(path, f"{name} offers nothing that could be published")
