"""What people want approved again: `trust/accept {again: PROPOSAL}`, and reads where the space says so.

The same message may say how often (`count`) and how long (`until`, a time or `7d`); otherwise it is what was
offered with the proposal (`moot/origins`, `again`). It counts only from people, never for a call that several
have to approve (D-103), and nobody remembers their own proposals.

Of what destroys something, only commands and texts for files are remembered: that is what people do all day
(decision 0203). They run until the agent is cleared or restarted, whatever it reads; then they ask where
others may have led it to them (`OriginVerdict.steered`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from moot.errors import UsageError
from moot.protocol.envelope import Envelope
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Case
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.rules.conditions import canonical, read_time
from moot.trust.rules.remembered_calls import (
    MAX_REMEMBERED,
    REMEMBERED,
    chosen_limits,
    destroying_limits,
    rule_for,
    usual_limits,
)
from moot.trust.rules.rule import AskCondition, Rule, RuleLimits, RuleOrigin
from moot.trust.rules.rule_evaluation import call_key
from moot.trust.rules.rule_json import read_duration
from moot.trust.rules.rule_words import limits_text
from moot.trust.rules.tripwires import (
    Complaint,
    Event,
    MemberKicked,
    PersonDecided,
    ProposalSeen,
    ToolChanged,
    trip_rules,
)
from moot.values.kinds import has_word, stores_texts
from moot.values.word_lists import REMOVING_TOOLS, RUNNING_TOOLS

if TYPE_CHECKING:
    from moot.trust.approver.approver import Approver

log = logging.getLogger(__name__)

# Approvals and half wishes of one call that are kept; of no more than `MAX_REMEMBERED` calls.
MAX_APPROVALS: Final = 10
# Calls that are told one by one when they are forgotten together; of more only the number is told.
MAX_TOLD: Final = 20


class CallMemory:
    """Remembers and forgets calls for one approver."""

    def __init__(self, approver: Approver) -> None:
        self._approver = approver
        self._store = approver.store
        # By call: the latest approvals of people, by proposal, with when it was proposed and who approved.
        self._approvals: LatestDict[bytes, LatestDict[str, tuple[float, str | None]]]
        self._approvals = LatestDict(MAX_REMEMBERED)
        # By call, those that some people want, and not yet as many as have to: who, as often and as long.
        self._half_wanted: LatestDict[bytes, LatestDict[bytes, tuple[str, ...]]]
        self._half_wanted = LatestDict(MAX_REMEMBERED)
        # Rules that a person has asked for since their member was cleared or restarted.
        self._lasting: set[str] = set()
        # What tools do, and which can be called again without harm, as people accepted it.
        self._is_repeatable = approver.suggester.is_repeatable
        self._store.remembered.ignored_of = lambda host, tool: approver.origins.traits_of(host, tool).ignore

    def _clock(self) -> float:
        return self._approver.wall_clock()

    # Finding

    def find(self, case: Case) -> list[Rule]:
        """The remembered rules that may decide a call now; without a limit only while its tool only reads."""
        found = self._store.remembered.find(case)
        if ended := [rule.name for rule in found if rule.has_ended(self._clock())]:
            # For good: a clock that is set back does not bring it back.
            self.forget(ended, "it has ended")
            found = [rule for rule in found if rule.name not in ended]
        if self._destroys(case):
            # What was remembered when it was said to do less was not meant for this.
            known = found if is_usual_work(case) else []
            return [rule for rule in known if rule.ask is not None and not rule.extra_arguments]
        return [rule for rule in found if rule.limits.max_decisions is not None or self._only_reads(case)]

    def steered_reason(self, case: Case, rule: Rule) -> str | None:
        """Why a remembered call that destroys something asks all the same; None if it runs."""
        if rule.name in self._lasting:
            return None
        return self._approver.origins.steered_reason(case)

    def note_cleared(self, members: Iterable[str]) -> None:
        """These begin anew, or any may have (none named): what they read then, nobody saw who pressed."""
        names = {*members}
        remembered = self._store.remembered
        self._lasting = {
            name
            for name in self._lasting
            if names and (rule := remembered.get(name)) is not None and rule.proposer not in names
        }

    def _destroys(self, case: Case) -> bool:
        return "destroys" in self._approver.origins.effects_of(case)

    def _only_reads(self, case: Case) -> bool:
        return self._approver.origins.effects_of(case) == {"reads"}

    def offer(self, case: Case) -> dict[str, Json] | None:
        """What pressing "again" would mean for an open proposal; None if it cannot be remembered."""
        if case.unexpected_fields or len(case.to) != 1 or self._needs_several(case.id):
            return None
        if self._destroys(case) and not is_usual_work(case):
            return None
        limits = self._usual_limits(case, 0.0)
        until, text = f"{(limits.expires_at or 0.0) / 86_400.0:.0f}d", limits_text(limits, days=True)
        if self._destroys(case):
            text += "; after a clear or restart it asks where others' words may have led to it"
        return {"until": until, "text": text}

    def _usual_limits(self, case: Case, now: float) -> RuleLimits:
        reads = self._only_reads(case)
        if self._destroys(case):
            return destroying_limits(now, self._approvals_of(case))
        repeatable = case.tool is not None and all(self._is_repeatable(host, case.tool) for host in case.to)
        return usual_limits(
            now, reads=reads, repeatable=repeatable, approved_at=() if reads else self._approvals_of(case)
        )

    def note_approved(self, decision: HistoryProposal) -> None:
        """Somebody approved a call: how often it may come again goes by that."""
        key = call_key(decision.case)
        self._approvals[key] = self._approvals.get(key, LatestDict(MAX_APPROVALS))
        self._approvals[key][decision.id] = decision.case.at, decision.by

    def _approvals_of(self, case: Case) -> list[float]:
        """When calls like this were proposed that people approved; this one is the latest."""
        known = self._approvals.get(call_key(case), {}).items()
        found = [at for id, (at, by) in known if id != case.id and by in self._store.people]
        return [*(at for at in found if at <= case.at), case.at]

    def _needs_several(self, id: str) -> bool:
        seen = self._approver.space.proposals.get(id)
        return seen is not None and bool(seen.approvals_needed)

    # Remembering

    def remember(self, envelope: Envelope) -> Rule | tuple[str, ...]:
        """Remember what a message names. Where several people have to want it, who does so far.

        Raises UsageError.
        """
        now, payload, store = self._clock(), envelope.payload, self._store
        decision = self._find_proposal(payload["again"])
        case = decision.case
        if case.proposer == envelope.sender:
            raise UsageError("nobody can have their own proposals approved again")
        if decision.lesson == "reject" or decision.verdict in ("withdrawn", "expired"):
            raise UsageError(f"this proposal was {decision.verdict}")
        if self._needs_several(decision.id):
            raise UsageError("several people have to approve this call each time")
        if self._destroys(case) and not is_usual_work(case):
            raise UsageError(f"{case.tool} can destroy something, so people decide each call of it")
        destroys, usual = self._destroys(case), self._usual_limits(case, now)
        count, until = _count(payload.get("count")), _until(payload.get("until"), now)
        limits = chosen_limits(usual, now, count, until, destroys=destroys)
        # Whoever wants it as often and as long: nobody's word counts for more than they saw.
        wanted = canonical([case.proposer, payload.get("count"), payload.get("until")])
        half = self._half_wanted[call_key(case)] = self._half_wanted.get(
            call_key(case), LatestDict(MAX_APPROVALS)
        )
        by = half[wanted] = store.people_with(half.get(wanted, ()), envelope.sender)
        if len(by) < store.accepting_people:
            return by
        del half[wanted]
        ask: AskCondition | None = "when_untrusted" if destroys else None
        rule = rule_for(case, limits, RuleOrigin(None, by[0], now, by[1:]), ask=ask)
        self._add(rule, now)
        self._approver.tool_watcher.pin([rule])
        self._lasting.add(rule.name)
        return rule

    def _find_proposal(self, id: Json) -> HistoryProposal:
        decision = self._approver.ledger.get(id) if isinstance(id, str) else None
        if decision is None:
            raise UsageError("this proposal is not known here any more")
        return decision

    def _add(self, rule: Rule, now: float) -> None:
        gone = self._store.remember(rule, now)
        self._lasting.difference_update(gone)
        self._tell_forgotten(gone, "remembered anew, at its end, or not used for the longest time")

    def remember_read(self, decision: HistoryProposal) -> None:
        """A person approved a call: with `reads: remember`, it and its tool if that only reads."""
        made = self._remember_reads(decision, decision.by, "approved it", by_tools=(False, True))
        if made:
            self._approver.tool_watcher.pin(made)

    def remember_named_read(self, decision: HistoryProposal) -> None:
        """A rule approved a read whose every value a person had said: the same as if they had approved it.

        Its tool is not listed again for it: what it returns would be a stranger's until then.
        """
        case = decision.case
        if not self._may_remember_read(case) or self._store.remembered.find(case):
            return
        if by := self._approver.origins.named_by(case.id):
            self._remember_reads(decision, by, "named all of its values", by_tools=(False,))

    def _may_remember_read(self, case: Case) -> bool:
        store = self._store
        is_wanted = store.remembers_reads and store.accepting_people == 1 and store.fault is None
        return is_wanted and len(case.to) == 1 and not case.unexpected_fields and self._only_reads(case)

    def _remember_reads(
        self, decision: HistoryProposal, by: str | None, done: str, *, by_tools: tuple[bool, ...]
    ) -> list[Rule]:
        case = decision.case
        if not self._may_remember_read(case):
            return []
        now = self._clock()
        known = self._store.remembered.find(case)
        limits = usual_limits(now, reads=True, repeatable=True)
        made = [
            rule_for(case, limits, RuleOrigin(None, by, now), by_tool=by_tool)
            for by_tool in by_tools
            if all(rule.extra_arguments != by_tool for rule in known)
        ]
        for rule in made:
            self._add(rule, now)
            why = f"{by} {done}, and this space remembers reads"
            self._approver.commands.announce_rule(rule.name, "active", why, about=decision.id)
        return made

    # Forgetting

    def trip(self, event: Event, *, at: float | None = None) -> None:
        """Forget what an event contradicts. `at` as in `Approver.trip`."""
        remembered, now = self._store.remembered, self._clock()
        if isinstance(event, MemberKicked | ToolChanged):
            # Which host and tool each is about is not known any more, and one press brings it back.
            self._half_wanted.clear()
        names: list[str] = []
        why, about = "a person rejected this call", ""
        if isinstance(event, PersonDecided):
            decision, about = event.decision, event.decision.id
            if decision.lesson == "reject":
                self._half_wanted.pop(call_key(decision.case), None)
                names = remembered.contradicted_by(decision.case, origins_ask=event.origins_ask)
        elif not isinstance(event, ProposalSeen):
            for each in trip_rules(tuple(remembered), event, now):
                names, why, about = [*names, each.rule], each.why, each.about or ""
        if at is not None:
            rules = [rule for name in names if (rule := remembered.get(name)) is not None]
            names = [rule.name for rule in rules if (rule.origin.accepted or 0.0) < at]
        if self.forget(names, why, about=about) and isinstance(event, PersonDecided | Complaint):
            self._approver.history.count("wrong", now, rule=REMEMBERED)

    def forget(self, names: Iterable[str], why: str, *, about: str = "") -> list[str]:
        gone = [name for name in names if self._store.remembered.get(name) is not None]
        if gone:
            self._store.remembered.forget(gone)
            self._lasting.difference_update(gone)
            self._store.remembered.save()
            log.info("remembered calls forgotten", extra={"count": len(gone), "why": why})
            self._tell_forgotten(gone, why, about=about)
        return gone

    def _tell_forgotten(self, names: list[str], why: str, *, about: str = "") -> None:
        for name in names[:MAX_TOLD]:
            self._approver.commands.announce_removed(name, why, about=about or None)
        if len(names) > MAX_TOLD:
            self._approver.say(f"forgot {len(names)} remembered calls: {why}")


def is_usual_work(case: Case) -> bool:
    """Whether it runs a command, or writes a text: calls that come again and again, and whose values say all
    that they do. A deletion is neither, as of a node or of a script.
    """
    if has_word(case.tool, REMOVING_TOOLS):
        return False
    is_stored = any(stores_texts(name, case.tool) for name in case.arguments)
    return is_stored or has_word(case.tool, RUNNING_TOOLS)


def _count(value: Json) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise UsageError("count is a whole number")
    return value


def _until(value: Json, now: float) -> float | None:
    if value is None:
        return None
    if isinstance(value, str) and value[-1:] in ("s", "m", "h", "d", "w"):
        return now + read_duration(value, "until")
    try:
        return read_time(value)
    except UsageError as fault:
        raise UsageError(f"until {fault}, or a duration such as 7d") from None
