"""Suggests rules from what people decided, some time after each decision.

Nothing becomes active here: `trust/suggestion` shows a rule to everybody, and a person accepts it.

Whose approvals count: people, recognised by a capability that only they hold. A person is a member who may
send `trust/accept`, as the roster shows. Approvals of other members do not count: an agent that may call
tools itself and fulfils what others propose, a bridge, another approver. Anyone's rejection counts, since it
only prevents suggestions. Capabilities are only visible of members who are present, so the last known state
is kept: Alice's approvals of yesterday count while she is away, and no longer once she has come back without
the capability.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from moot.participant.connection.roster import PresenceEvent
from moot.protocol.operation import Json
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.learning.backtest import back_test
from moot.trust.learning.learner import suggest
from moot.trust.learning.learning_settings import LearningSettings
from moot.trust.learning.suggestion import Suggestion, why_no_grant
from moot.trust.learning.suggestion_progress import SuggestionProgress, suggestion_progress
from moot.trust.rules.rule_words import ASK_TEXT, MAX_SENTENCE, describe_shortly

if TYPE_CHECKING:
    from moot.trust.approver.approver import Approver

ACCEPT: Final = "trust/accept"
# More than a space has members; beyond this nobody is added.
MAX_PEOPLE: Final = 10_000
# How long learning waits after a decision: people decide several in a row.
LEARN_SECONDS: Final = 0.5
# Suggestions that are open at once: people read few, and decide about few.
MAX_OPEN_SUGGESTIONS: Final = 3
# Of what rules decided, the suggestions tell of this many of the latest decisions; takes some 100 ms.
MAX_LATEST_DECISIONS: Final = 5_000


# What was found about the origins of a proposal, if anybody looked.
FindingOf = Callable[[str], Mapping[str, Json] | None]


class SeenMember(Protocol):
    """A member as the roster shows it."""

    @property
    def name(self) -> str: ...
    def may(self, kind: str, /) -> bool: ...


def people_among(members: Iterable[SeenMember], before: frozenset[str], *, me: str) -> frozenset[str]:
    """The people known so far, updated by the capabilities of the present members. `me` is never one."""
    present = list(members)
    # A member may be connected several times: every connection must hold the capability.
    without = {member.name for member in present if not member.may(ACCEPT)} | {me}
    found = (before | {member.name for member in present}) - without
    return found if len(found) <= MAX_PEOPLE else before - without


class RuleSuggester:
    """Keeps the suggestions of one space up to date with its ledger."""

    def __init__(self, approver: Approver) -> None:
        self._approver = approver
        self._space, self._store, self._ledger = approver.space, approver.store, approver.ledger
        self._settings, self._tool_watcher = approver.settings, approver.tool_watcher
        self._evidence_changed = asyncio.Event()
        # What was approved and is not suggested yet, and why; `on_progress` is called when it changes.
        self.progress: list[SuggestionProgress] = []
        self.on_progress: Callable[[list[SuggestionProgress]], None] = lambda _: None
        self._space.roster.on_change(self.update_people)

    def wake(self) -> None:
        """There is something new to learn from."""
        self._evidence_changed.set()

    def learning_settings(self) -> LearningSettings:
        """The settings for learning; people are the members who can accept rules, unless the settings name
        them.
        """
        settings = self._settings.learning
        if settings.people is not None:
            return settings
        self.update_people()
        return replace(settings, people=self._store.people)

    def update_people(self, _: PresenceEvent | None = None) -> None:
        """Note who is a person; at every change, since a shell command joins for a moment only."""
        members = self._space.roster.values()
        people = people_among(members, self._store.people, me=self._space.name)
        if people != self._store.people:
            self._approver.origins.note_people()
            self._store.people = people

    async def run(self) -> None:
        while self._settings.makes_suggestions:
            await self._evidence_changed.wait()
            await asyncio.sleep(LEARN_SECONDS)
            self._evidence_changed.clear()
            if self._store.fault is None:
                await self.suggest_now()

    async def suggest_now(self) -> None:
        store, now = self._store, self._approver.wall_clock()
        history = _learned_from(list(self._ledger))
        rules, unwanted = store.rules, store.unwanted
        await self._tool_watcher.load_schemas(
            dict.fromkeys(host for each in history for host in each.case.to)
        )
        settings, schemas = self.learning_settings(), self._tool_watcher.schemas
        tools = list(self._tool_watcher.definitions)
        found = await asyncio.to_thread(
            suggest,
            history,
            rules,
            dismissed=unwanted,
            suspended=frozenset(store.suspensions),
            now=now,
            settings=settings,
            schemas=schemas,
            repeatable=frozenset(key for key in tools if self.is_repeatable(*key)),
            reading=frozenset(key for key in tools if self._reads(*key)),
        )
        found = [ask_as_people_saw(each, history, self._approver.origins.finding) for each in found]
        known = (*rules, *unwanted, *(each.rule for each in found))
        progress = await asyncio.to_thread(suggestion_progress, history, known, settings, schemas)
        if (store.rules, store.unwanted) != (rules, unwanted):
            # Somebody accepted or dismissed one meanwhile: it would be suggested again at once.
            self._evidence_changed.set()
            return
        # What people already see stays before them.
        found.sort(key=lambda each: each.id not in store.suggestions)
        fresh = {each.id: each.as_json() for each in found[:MAX_OPEN_SUGGESTIONS]}
        for id in [id for id in store.suggestions if id not in fresh]:
            if id in store.pending and not back_test(store.pending[id].rule, history).conflicts:
                # Somebody accepted it, and nothing speaks against it: another person may still do so.
                continue
            # Its evidence has grown into another suggestion, or no longer supports it.
            del store.suggestions[id]
            self._approver.send("trust/dismiss", {"suggestion": id, "reason": "overtaken"})
        for id, payload in fresh.items():
            if id not in store.suggestions:
                store.suggestions[id] = payload
                self._approver.send("trust/suggestion", payload)
        store.save()
        if progress != self.progress:
            self.progress = progress
            self.on_progress(progress)

    def is_repeatable(self, host: str, tool: str) -> bool:
        """Whether it may be called again and again: people say that it only reads, or accepted that it claims
        to be idempotent.
        """
        key, digest = f"{host}/{tool}", self._tool_watcher.definition_of(host, tool)
        if digest is None or key in self._store.changed_tools:
            return False
        annotations = self._tool_watcher.definitions[host, tool].annotations
        hints = annotations if isinstance(annotations, dict) else {}
        is_accepted = any((each.pattern, each.definition) == (key, digest) for each in self._store.tools)
        return self._reads(host, tool) or (is_accepted and hints.get("idempotentHint") is True)

    def _reads(self, host: str, tool: str) -> bool:
        is_listed = self._tool_watcher.definition_of(host, tool) is not None
        return is_listed and self._approver.origins.traits_of(host, tool).effect == "reads"


def _learned_from(decisions: Sequence[HistoryProposal]) -> list[HistoryProposal]:
    """All that people decided, however much rules decided since, and the latest of the rest."""
    older, latest = decisions[:-MAX_LATEST_DECISIONS], decisions[-MAX_LATEST_DECISIONS:]
    return [*(decision for decision in older if decision.lesson is not None), *latest]


def ask_as_people_saw(
    suggestion: Suggestion, history: Sequence[HistoryProposal], finding: FindingOf
) -> Suggestion:
    """The suggestion with `ask: when_untrusted`, if people approved only calls whose origins did not ask.

    A rule must not approve what only a mail said because people approved what they had asked for themselves.
    """
    rule = suggestion.rule
    if rule.decision != "approve" or rule.method != "tools/call" or rule.ask is not None:
        return suggestion
    approved = (
        each for each in history if each.lesson == "approve" and rule.matches(each.case, each.case.at)
    )
    asked = {found["asks"] for each in approved if (found := finding(each.id)) is not None}
    if asked != {False}:
        return suggestion
    id = f"{suggestion.id}-said"
    words = suggestion.words + ASK_TEXT
    if len(words) > MAX_SENTENCE:
        words = describe_shortly(replace(rule, ask="when_untrusted"), {})
    origin = replace(rule.origin, suggestion=id)
    by_origin = replace(rule, ask="when_untrusted", origin=origin, words=words)
    no_grant = why_no_grant(by_origin)
    return replace(suggestion, id=id, rule=by_origin, words=words, grant=None, no_grant=no_grant)
