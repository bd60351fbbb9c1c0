"""What an approver keeps between its runs: rules that people can read and edit, and their state.

    rules.yaml    the rules in their order, and what tools do; whoever can write this file can change them,
                  and it is read again
    remembered.json  calls that people want approved again (`remembered_calls`)
    state.json    suspensions, suggestions (open, half accepted, dismissed, granted), pinned tool definitions,
                  when tools changed, whether all rules are stopped, who wants to resume what, who is known
                  as a person, when a person last reviewed each rule, which rules have expired, which tools
                  changed unseen, plans and how much of them is used, and the first and the last messages
                  that the approver saw

Both are replaced as a whole, so a crash leaves the previous version. A rules.yaml that cannot be read stops
all rules: half of somebody's rules may be the wrong half.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from moot.errors import UsageError
from moot.origins.tool_traits import ToolEntry, entries_from_json
from moot.private_files import use_folder
from moot.protocol.operation import Json
from moot.protocol.patterns.globs import glob
from moot.resilience.atomic_file import write_atomically
from moot.trust.history.proposal_case import Case
from moot.trust.history.proposal_case import Path as ArgumentPath
from moot.trust.rules.budgets import MAX_DECISIONS
from moot.trust.rules.cedar_policies import NO_POLICIES, CedarPolicies, CedarVerdict
from moot.trust.rules.plan import PlanRecord, record_of_json
from moot.trust.rules.remembered_calls import RememberedCalls
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import RuleVerdict
from moot.trust.rules.rule_json import rule_as_json, rule_of_json
from moot.trust.rules.rule_set import RuleSet
from moot.trust.rules.rule_yaml import RuleFile, read_rule_file, write_rules
from moot.trust.rules.store_records import GrantedRule, PendingAcceptance, RuleStop, RuleUses
from moot.trust.rules.tripwires import Suspension

RULES_NAME: Final = "rules.yaml"
STATE_NAME: Final = "state.json"
# Among those who want to resume something: all rules together. No rule has this name.
ALL_RULES: Final = ""
# The oldest are dropped first.
MAX_SUGGESTIONS: Final = 100
MAX_DISMISSED: Final = 500
MAX_CHANGED_TOOLS: Final = 1_000
MAX_PLANS: Final = 100
MAX_USES: Final = 1_000
# Several, since a gateway that restarts may not bring back the very last one.
MAX_LAST_SEEN: Final = 20
_GONE: Final = f"{RULES_NAME} is gone, and what it rejected is unknown; write it again (`rules: []` if none)"


@dataclass(slots=True)
class RuleStore:
    """The rules of one space and their state. `save` after every change."""

    folder: Path
    rules: tuple[Rule, ...] = ()
    suspensions: dict[str, Suspension] = field(default_factory=dict)
    dismissed: tuple[Rule, ...] = ()
    # Open suggestions as they were sent, by id.
    suggestions: dict[str, dict[str, Json]] = field(default_factory=dict)
    # Of open suggestions that somebody accepted, and others have to accept, too.
    pending: dict[str, PendingAcceptance] = field(default_factory=dict)
    # How many people have to accept a suggestion, or resume a rule. Only a rules file that can be read lowers
    # it.
    accepting_people: int = 1
    # Who wants to resume a suspended rule, or all rules (`ALL_RULES`), where others have to want it, too.
    resuming: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # Suggestions that were granted instead, by id; nothing like them is suggested while the grant stands.
    granted: dict[str, GrantedRule] = field(default_factory=dict)
    # Who can accept rules, as the roster last showed it (`rule_suggester`).
    people: frozenset[str] = frozenset()
    # When a person last reviewed a rule: wrote, accepted or resumed it. Earlier events suspend nothing.
    reviewed: dict[str, float] = field(default_factory=dict)
    # Ids of the latest messages that the approver saw: what comes after them in the history was missed.
    last_seen: tuple[str, ...] = ()
    # Approving rules that have expired, with the moment: they stay so when a clock is set back.
    expired: dict[str, float] = field(default_factory=dict)
    # `host/tool` → hash of the definition that people decided by.
    definitions: dict[str, str] = field(default_factory=dict)
    # When a tool that people had approved calls of changed last: earlier approvals no longer count.
    tool_changes: dict[str, float] = field(default_factory=dict)
    # `host/tool` of those that changed, and that no person has looked at since.
    changed_tools: dict[str, None] = field(default_factory=dict)
    # What tools do, as the rules file says, and read.
    tools_json: dict[str, Json] = field(default_factory=dict)
    tools: tuple[ToolEntry, ...] = ()
    # Whether a call that only reads is remembered once a person approved it.
    remembers_reads: bool = False
    remembered: RememberedCalls = field(default_factory=RememberedCalls)
    stopped: RuleStop | None = None
    # By the message that laid each out, oldest first.
    plans: dict[str, PlanRecord] = field(default_factory=dict)
    # What was used of rules that are counted over restarts (`is_counted`).
    uses: dict[str, RuleUses] = field(default_factory=dict)
    # Why the rules file cannot be used; None if it can.
    fault: str | None = None
    # Files with Cedar policies, as the rules file names them, and read.
    cedar_files: tuple[str, ...] = ()
    policies: CedarPolicies | None = None
    # The tests in the rules file, which people write and nobody else changes.
    _tests: Json = None
    _stamp: tuple[Json, ...] = ()

    @property
    def unwanted(self) -> tuple[Rule, ...]:
        """What nobody wants to be suggested: it was dismissed, or granted instead."""
        return (*self.dismissed, *(each.rule for each in self.granted.values()))

    @classmethod
    def open(cls, folder: Path) -> RuleStore:
        """Open the store in a folder, which is created if needed; raises UsageError.

        The caller marks rules that nobody accepted as reviewed (`unreviewed`, `mark_reviewed`).
        """
        use_folder(folder, what="the folder of rules", option="--state DIR")
        store = cls(folder)
        known = store._read_state()
        store.remembered = RememberedCalls.open(folder)
        store.reload()
        accepted = (*store.rules, *store.remembered)
        if not known and any(rule.origin.accepted_by is not None for rule in accepted):
            # Rules were accepted here, so there was a state, and nobody knows what it said.
            why = f"{STATE_NAME} is missing, so it is unknown which rules were stopped or suspended"
            store.stopped = RuleStop("approver", why, time.time())
        return store

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """The rules, and each Cedar policy as a rule."""
        return self.rule_set.all_rules

    @property
    def rule_set(self) -> RuleSet:
        """All that decides in this space."""
        return RuleSet(self.rules, self.policies, self.remembered)

    def judge(self, case: Case, untrusted: str | None) -> CedarVerdict:
        """Which Cedar policies apply to a proposal."""
        return NO_POLICIES if self.policies is None else self.policies.judge(case, untrusted)

    @property
    def rules_file(self) -> Path:
        return self.folder / RULES_NAME

    def reload(self) -> bool:
        """Read the rules file if it changed; returns whether it did."""
        if self._find_stamp() == self._stamp:
            return False
        self.policies, self.cedar_files = None, ()
        is_there = _stamp_of(self.rules_file) is not None
        try:
            nothing = RuleFile(accepting_people=self.accepting_people)
            found = read_rule_file(self.rules_file.read_text("utf-8")) if is_there else nothing
            # It was there when the first call was remembered (`remember`), and may have rejected things.
            self.rules, self.fault = found.rules, None if is_there or not self.remembered else _GONE
            self.accepting_people, self.remembers_reads = found.accepting_people, found.remembers_reads
            self.tools_json, self.tools = dict(found.tools), tuple(entries_from_json(found.tools))
            self.cedar_files, self._tests = found.cedar, found.tests
            # Before the files are read: what changes meanwhile is read again.
            self._stamp = self._find_stamp()
            self.policies = CedarPolicies(self.folder, self.cedar_files) if self.cedar_files else None
        except (UsageError, OSError, UnicodeDecodeError) as fault:
            self.rules, self.fault = (), f"{self.rules_file.name}: {fault}"
            self._stamp = self._find_stamp()
        if is_there and self.fault is None:
            names = {rule.name for rule in self.all_rules}
            self.suspensions = {name: s for name, s in self.suspensions.items() if name in names}
        return True

    def people_with(self, before: Iterable[str], sender: str) -> tuple[str, ...]:
        """Those who wanted something before, and one more: nobody counts twice, or who is no person now."""
        return tuple(dict.fromkeys((*(name for name in before if name in self.people), sender)))

    def blocked(self) -> RuleVerdict | None:
        """Why no rule decides anything now; None if rules may."""
        if self.fault is not None:
            return RuleVerdict("ask", None, f"the rules cannot be read: {self.fault}")
        if self.stopped is not None:
            return RuleVerdict("ask", None, f"{self.stopped.by} stopped all rules: {self.stopped.why}")
        return None

    def rule(self, name: str) -> Rule | None:
        """The rule of this name, of the file or remembered."""
        found = next((rule for rule in self.all_rules if rule.name == name), None)
        return found or self.remembered.get(name)

    def rules_about(self, case: Case, deciding: str | None = None) -> list[Rule]:
        """All rules of the file, what is remembered of a call, and the rule that decided it."""
        remembered = [*self.remembered.find(case), self.remembered.get(deciding or "")]
        found = {rule.name: rule for rule in remembered if rule is not None}
        return [*self.all_rules, *found.values()]

    def mark_reviewed(self, names: Iterable[str], now: float) -> None:
        """A person has reviewed these rules."""
        self.reviewed |= dict.fromkeys(names, now)

    def unreviewed(self) -> list[str]:
        """Rules that nobody is known to have reviewed: a person wrote them into the file."""
        return [rule.name for rule in self.all_rules if rule.name not in self.reviewed]

    def reviewed_at(self, rule: str) -> float:
        """When a person last reviewed the rule: earlier events do not suspend it."""
        return self.reviewed.get(rule, 0.0)

    def note_seen(self, ids: Iterable[str]) -> None:
        """The approver saw these messages; written with the next `save`."""
        self.last_seen = (*self.last_seen, *ids)[-MAX_LAST_SEEN:]

    def note_expired(self, now: float) -> None:
        """Remember which approving rules have expired by now.

        Not those that reject or ask: a clock that was ahead for a moment must not remove them for good.
        """
        found = {
            rule.name: moment
            for rule in self.all_rules
            if rule.decision == "approve" and rule.has_ended(now) and (moment := rule.ends_at) is not None
        }
        if not found.items() <= self.expired.items():
            self.expired |= found
            self.save()

    def expired_names(self) -> frozenset[str]:
        """Rules that have expired once; one that a person gave another end is not among them."""
        ends = ((rule.name, rule.ends_at) for rule in self.all_rules)
        return frozenset(name for name, moment in ends if moment and self.expired.get(name) == moment)

    def note_use(self, rule: Rule, at: float, amounts: Mapping[ArgumentPath, Decimal | None]) -> None:
        """Write down that a rule is about to decide; raises OSError if that cannot be written."""
        uses = self.uses.setdefault(rule.name, RuleUses())
        uses.times = [*uses.times, at][-MAX_DECISIONS:]
        for path, amount in amounts.items():
            uses.sums[path] = uses.sums.get(path, Decimal(0)) + (amount or Decimal(0))
        self.save()

    def open_suggestions(self) -> list[dict[str, Json]]:
        """The open suggestions as people should see them, with who has accepted each."""
        return [self.open_suggestion(id) for id in self.suggestions]

    def open_suggestion(self, id: str) -> dict[str, Json]:
        pending = self.pending.get(id)
        if pending is None:
            return self.suggestions[id]
        found = {**self.suggestions[id], "accepted_by": list(pending.by)}
        found["accepting_people"] = self.accepting_people
        return {**found, "accepted_rule": rule_as_json(pending.rule)} if pending.narrowed else found

    def set_rules(self, rules: Iterable[Rule]) -> None:
        """Write a new list of rules; raises UsageError while the file cannot be read, since it would be
        lost.
        """
        self._write(tuple(rules), self.tools_json)
        names = {rule.name for rule in self.all_rules}
        self.suspensions = {name: s for name, s in self.suspensions.items() if name in names}
        self.save()

    def remember(self, rule: Rule, now: float) -> list[str]:
        """Remember a call; returns what is forgotten for it. Raises UsageError while the file is faulty."""
        if _stamp_of(self.rules_file) is None:
            self._write(self.rules, self.tools_json)
        gone = self.remembered.add(rule, now)
        self.remembered.save()
        return gone

    def set_tools(self, changes: Mapping[str, Json]) -> None:
        """Write what some tools do; None removes a line. Raises UsageError.

        The first line that matches counts, so each comes before the first that stands for it, too.
        """
        order = list(self.tools_json)
        for key in changes:
            place = next((at for at, line in enumerate(order) if _stands_for(line, key)), len(order))
            if key in order:
                order.remove(key)
            order.insert(place, key)
        found = {key: changes.get(key, self.tools_json.get(key)) for key in order}
        tools = {key: value for key, value in found.items() if value is not None}
        entries_from_json(tools)
        self._write(self.rules, tools)
        for key in changes:
            self.changed_tools.pop(key, None)
        self.save()

    def _write(self, rules: tuple[Rule, ...], tools: dict[str, Json]) -> None:
        if self.fault is not None:
            raise UsageError(f"correct {self.rules_file} first: {self.fault}")
        head = RuleFile((), self.accepting_people, self.remembers_reads, tools, self.cedar_files, self._tests)
        write_atomically(self.rules_file, write_rules(rules, head).encode())
        self.rules, self.tools_json, self.tools = rules, tools, tuple(entries_from_json(tools))
        self._stamp = self._find_stamp()

    def _find_stamp(self) -> tuple[Json, ...]:
        files = (self.rules_file, *(self.folder / name for name in self.cedar_files))
        return tuple(_stamp_of(each) for each in files)

    def save(self) -> None:
        while len(self.suggestions) > MAX_SUGGESTIONS:
            del self.suggestions[next(iter(self.suggestions))]
        self.pending = {id: each for id, each in self.pending.items() if id in self.suggestions}
        while len(self.granted) > MAX_DISMISSED:
            del self.granted[next(iter(self.granted))]
        self.dismissed = self.dismissed[-MAX_DISMISSED:]
        while len(self.changed_tools) > MAX_CHANGED_TOOLS:
            del self.changed_tools[next(iter(self.changed_tools))]
        resumable = {*self.suspensions, *(rule.name for rule in self.rules if rule.observe)}
        self.resuming = {
            name: by
            for name, by in self.resuming.items()
            if (self.stopped is not None if name == ALL_RULES else name in resumable)
        }
        if self.fault is None:
            names = {rule.name for rule in self.all_rules}
            self.reviewed = {name: at for name, at in self.reviewed.items() if name in names}
            self.expired = {name: at for name, at in self.expired.items() if name in names}
            # Not at once: a file that is replaced is gone for a moment, and that must give no rights back.
            idle = [name for name in self.uses if name not in names and self.remembered.get(name) is None]
            for name in idle[:-MAX_USES]:
                del self.uses[name]
        for id in [id for id, each in self.plans.items() if each.state == "ended"]:
            if len(self.plans) > MAX_PLANS:
                del self.plans[id]
        state: dict[str, Json] = {
            "suspensions": [asdict(each) for each in self.suspensions.values()],
            "dismissed": [rule_as_json(rule) for rule in self.dismissed],
            "suggested": self.suggestions,
            "pending": {id: each.as_json() for id, each in self.pending.items()},
            "accepting_people": self.accepting_people,
            "resuming": self.resuming,
            "granted": {id: each.as_json() for id, each in self.granted.items()},
            "people": sorted(self.people),
            "looked": self.reviewed,
            "last_seen": list(self.last_seen),
            "expired": self.expired,
            "definitions": self.definitions,
            "tool_changes": self.tool_changes,
            "changed_tools": list(self.changed_tools),
            "stopped": None if self.stopped is None else asdict(self.stopped),
            "plans": {id: each.as_json() for id, each in self.plans.items()},
            "uses": {name: each.as_json() for name, each in self.uses.items()},
        }
        write_atomically(self.folder / STATE_NAME, json.dumps(state, ensure_ascii=False, indent=1).encode())

    def _read_state(self) -> bool:
        """Read the state file; returns whether there is one."""
        file = self.folder / STATE_NAME
        try:
            state: Any = json.loads(file.read_text("utf-8"))
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as fault:
            raise UsageError(f"{file} cannot be read: {fault}. Move it away to start without it") from None
        try:
            self.suspensions = {each["rule"]: Suspension(**each) for each in state["suspensions"]}
            self.dismissed = tuple(rule_of_json(each) for each in state["dismissed"])
            self.suggestions = dict(state["suggested"])
            self.pending = {
                id: PendingAcceptance(rule_of_json(each["rule"]), tuple(each["by"]), bool(each["narrowed"]))
                for id, each in state.get("pending", {}).items()
            }
            self.accepting_people = int(state.get("accepting_people", 1))
            self.resuming = {name: tuple(by) for name, by in state.get("resuming", {}).items()}
            self.granted = {
                id: GrantedRule(rule_of_json(each["rule"]), each["by"], each["grant"])
                for id, each in state.get("granted", {}).items()
            }
            self.people = frozenset(state.get("people", ()))
            self.reviewed = dict(state.get("looked", {}))
            self.last_seen = tuple(str(each) for each in state.get("last_seen", ()))
            self.expired = dict(state.get("expired", {}))
            self.definitions = dict(state["definitions"])
            self.tool_changes = dict(state.get("tool_changes", {}))
            self.changed_tools = dict.fromkeys(str(each) for each in state.get("changed_tools", ()))
            self.stopped = None if state["stopped"] is None else RuleStop(**state["stopped"])
            self.plans = {id: record_of_json(each) for id, each in state.get("plans", {}).items()}
            self.uses = {
                name: RuleUses(
                    [float(at) for at in each["times"]],
                    {tuple(path): Decimal(sum) for path, sum in each["sums"]},
                )
                for name, each in state.get("uses", {}).items()
            }
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, UsageError) as fault:
            raise UsageError(f"{file} is damaged: {fault}. Move it away to start without it") from None
        return True


def _stands_for(pattern: str, key: str) -> bool:
    """Whether a line about tools matches all that another one does."""
    return all(
        glob(each).matches(other)
        for each, other in zip(pattern.split("/", 1), key.split("/", 1), strict=False)
    )


def _stamp_of(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
