"""One source's tools, prompts and resources become what is published of them (XP 4, 7.1, 8.5).

A pure function of what the server lists, what the operator configured and what was published before. Nothing
raises because of a server: what may not be published is named with its reason, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import msgspec

from moot.protocol.operation import Json
from moot.xprotocol.contracts.capabilities import check_capabilities, contradiction
from moot.xprotocol.contracts.contracts import Contract, ContractRefused, Refusal, exact_canonical
from moot.xprotocol.contracts.source_overrides import SourceSettings
from moot.xprotocol.contracts.versions import EMPTY, VersionChange, VersionDefinition, VersionRegistry
from moot.xprotocol.grammar import compile_grammar
from moot.xprotocol.translation.prompts import draft_prompt
from moot.xprotocol.translation.resources import draft_subscription, subscription, updated_kind
from moot.xprotocol.translation.tool_semantics import Siblings
from moot.xprotocol.translation.translation import Draft, GrammarCompiler, draft_tool, finish

NoticeCode = Literal[
    "contradiction", "duplicate", "example", "low_quality", "resources", "unknown_tool", "withheld"
]


@dataclass(frozen=True, slots=True)
class ServerOffer:
    """What an MCP server lists, each entry as it came over the wire."""

    tools: Sequence[Json] = ()
    prompts: Sequence[Json] = ()
    resources: Sequence[Json] = ()
    resource_templates: Sequence[Json] = ()


@dataclass(frozen=True, slots=True)
class NotPublished:
    """Something that is not published: its name at the server, a word and a sentence why."""

    name: str
    reason: Refusal
    message: str


@dataclass(frozen=True, slots=True)
class PublicationNotice:
    """Something that the operator should look at; `about` is a kind, or a name at the server."""

    about: str
    code: NoticeCode
    message: str


class LowQuality(msgspec.Struct, frozen=True):
    """XP 4.6, D-62: an entry of `low_quality_schemas` in the announce."""

    kind: str
    description_quality_score: float
    issue: str


@dataclass(frozen=True, slots=True)
class Publication:
    """What a source publishes now, sorted by kind, and everything to be said about the rest."""

    contracts: tuple[Contract, ...]
    refused: tuple[NotPublished, ...]
    warnings: tuple[PublicationNotice, ...]
    low_quality: tuple[LowQuality, ...]
    registry: VersionRegistry
    changes: tuple[VersionChange, ...]


@dataclass(slots=True)
class _PublicationWork:
    """What has been decided so far."""

    settings: SourceSettings
    drafts: dict[str, Draft] = field(default_factory=dict)
    refused: list[NotPublished] = field(default_factory=list)
    warnings: list[PublicationNotice] = field(default_factory=list)
    low_quality: list[LowQuality] = field(default_factory=list)


def publish(
    offer: ServerOffer,
    settings: SourceSettings,
    *,
    adapter_version: str,
    registry: VersionRegistry = EMPTY,
    taken: Collection[str] = (),
    compile: GrammarCompiler = compile_grammar,
) -> Publication:
    """Translate, check, judge and number everything that a source offers.

    `taken` are kinds that other sources of the same adapter have, their answers included. Raises UsageError
    for settings that cannot work, and for nothing that a server says.
    """
    check_capabilities(settings)
    work = _PublicationWork(settings)
    if "tools" in settings.expose:
        _tools(work, offer.tools, compile)
    if "prompts" in settings.expose:
        _prompts(work, offer.prompts, compile)
    subscribes = "resources" in settings.expose and (offer.resources or offer.resource_templates)
    if subscribes:
        _draft(work, "resources", partial(draft_subscription, settings, compile=compile))
    _refuse_taken(work, taken)
    return _finished(work, offer, adapter_version, registry)


def kinds_of(contracts: Iterable[Contract]) -> frozenset[str]:
    """Every kind that these contracts use, for calls, answers and updates."""
    kinds: set[str] = set()
    for contract in contracts:
        kinds.add(contract.kind)
        if contract.response is not None:
            kinds.add(contract.response.kind)
        if contract.subscription is not None:
            kinds.add(contract.subscription.updated_kind)
    return frozenset(kinds)


def _tools(work: _PublicationWork, tools: Sequence[Json], compile: GrammarCompiler) -> None:
    settings = work.settings
    named = _by_name(work, tools, "tool")
    for name in dict.fromkeys([*(settings.tool_allowlist or ()), *settings.schema_overrides]):
        if name not in named:
            work.warnings.append(
                PublicationNotice(name, "unknown_tool", "configured, but the server has no such tool")
            )
    for name, tool in named.items():
        if not settings.allows(name):
            continue
        draft = _draft(work, name, partial(draft_tool, tool, settings, compile=compile))
        if draft is not None:
            _judge(work, draft, contradiction(name, tool.get("annotations")))


def _prompts(work: _PublicationWork, prompts: Sequence[Json], compile: GrammarCompiler) -> None:
    for name, prompt in _by_name(work, prompts, "prompt").items():
        draft = _draft(work, name, partial(draft_prompt, prompt, work.settings, compile=compile))
        if draft is not None:
            _judge(work, draft, None)


def _by_name(work: _PublicationWork, listed: Sequence[Json], what: str) -> dict[str, Json]:
    """The entries that have a name of their own. Two that share one cannot be told apart when called."""
    named: dict[str, list[Json]] = {}
    for entry in listed:
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str):
            named.setdefault(name, []).append(entry)
        else:
            work.refused.append(NotPublished("", "malformed", f"a {what} has to be an object with a name"))
    single: dict[str, Json] = {}
    for name, entries in sorted(named.items()):
        if len(entries) > 1 and len({_comparable(entry) for entry in entries}) > 1:
            message = f"the server lists {len(entries)} different {what}s of this name"
            work.refused.append(NotPublished(name, "duplicate_tool", message))
            continue
        if len(entries) > 1:
            message = f"the server lists this {what} {len(entries)} times"
            work.warnings.append(PublicationNotice(name, "duplicate", message))
        single[name] = entries[0]
    return single


def _comparable(entry: Json) -> bytes:
    try:
        return exact_canonical(entry)
    except ContractRefused:
        # Not JSON: never the same as anything; it is refused for that when its turn comes.
        return repr(id(entry)).encode()


def _draft(work: _PublicationWork, name: str, make: Callable[[], Draft]) -> Draft | None:
    try:
        draft = make()
    except ContractRefused as refusal:
        work.refused.append(NotPublished(name, refusal.reason, refusal.message))
        return None
    if draft.kind in work.drafts:
        message = f"{draft.kind} is taken by {_name_of(work.drafts[draft.kind])}"
        work.refused.append(NotPublished(name, "kind_taken", message))
        return None
    work.drafts[draft.kind] = draft
    return draft


def _judge(work: _PublicationWork, draft: Draft, disagreement: str | None) -> None:
    """XP 4.6, D-62: flag what is described poorly, withhold what is hardly described at all."""
    settings, quality = work.settings, draft.quality
    if disagreement is not None:
        work.warnings.append(PublicationNotice(draft.kind, "contradiction", disagreement))
    given = draft.override.semantic.example_inputs
    if given is not None and draft.examples is not None and len(draft.examples) < len(given):
        message = f"{len(given) - len(draft.examples)} of {len(given)} example_inputs do not fit the payload"
        work.warnings.append(PublicationNotice(draft.kind, "example", message))
    if settings.is_low(quality.score):
        work.low_quality.append(LowQuality(draft.kind, quality.score, quality.issue))
        withheld = settings.is_withheld(quality.score)
        word = "not published" if withheld else "published, but flagged"
        message = (
            f"{word}: scores {quality.score:.2f}: {quality.issue}. Mend it at the server, or write a "
            "description in schema_overrides"
        )
        work.warnings.append(
            PublicationNotice(draft.kind, "withheld" if withheld else "low_quality", message)
        )
        if withheld:
            del work.drafts[draft.kind]


def _refuse_taken(work: _PublicationWork, taken: Collection[str]) -> None:
    """An event of a kind must be a call or an answer, never either: refuse what would blur that."""
    answers = {f"{kind}.result": draft for kind, draft in work.drafts.items()}
    updates = updated_kind(work.settings.namespace)
    for kind, draft in sorted(work.drafts.items()):
        if kind in answers:
            owner: str | None = f"the answers of {_name_of(answers[kind])}"
        elif kind == updates:
            owner = "updates of resources"
        else:
            owner = "another source" if kind in taken or f"{kind}.result" in taken else None
        if owner is not None:
            work.refused.append(NotPublished(_name_of(draft), "kind_taken", f"{kind} is taken by {owner}"))
            del work.drafts[kind]
    work.low_quality = [low for low in work.low_quality if low.kind in work.drafts or _is_withheld(work, low)]


def _is_withheld(work: _PublicationWork, low: LowQuality) -> bool:
    return work.settings.is_withheld(low.description_quality_score)


def _name_of(draft: Draft) -> str:
    return draft.source.mcp_tool or draft.source.mcp_prompt or "resources"


def _definition(draft: Draft) -> VersionDefinition:
    return VersionDefinition(
        description=draft.description,
        payload=draft.payload,
        response=draft.response,
        required_capability=draft.required_capability,
        semantic=draft.override.semantic.as_json(),
    )


def _finished(
    work: _PublicationWork, offer: ServerOffer, adapter_version: str, registry: VersionRegistry
) -> Publication:
    drafts: Mapping[str, Draft] = dict(sorted(work.drafts.items()))
    siblings = Siblings(draft.sibling for draft in drafts.values() if draft.source.mcp_tool is not None)
    registration = registry.registered({kind: _definition(draft) for kind, draft in drafts.items()})
    contracts = [
        finish(
            draft,
            work.settings,
            siblings=siblings if draft.source.mcp_tool is not None else None,
            version=registration.versions[kind],
            adapter_version=adapter_version,
        )
        for kind, draft in drafts.items()
    ]
    for place, contract in enumerate(contracts):
        if drafts[contract.kind].source.mcp_tool is None and drafts[contract.kind].source.mcp_prompt is None:
            listed, warnings = subscription(work.settings, offer.resources, offer.resource_templates)
            contracts[place] = msgspec.structs.replace(contract, subscription=listed)
            work.warnings += [PublicationNotice(contract.kind, "resources", warning) for warning in warnings]
    return Publication(
        contracts=tuple(contracts),
        refused=tuple(work.refused),
        warnings=tuple(work.warnings),
        low_quality=tuple(sorted(work.low_quality, key=lambda low: low.kind)),
        registry=registration.registry,
        changes=registration.changes,
    )
