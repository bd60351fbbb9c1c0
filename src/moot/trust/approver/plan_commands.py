"""Plans in a space: laid out by members, approved or cut by people, and ended (`moot.trust.rules.plan`).

    moot/plan      member → all     {task, hours, lines, member?}; {withdraw: PLAN}
    trust/accept   person → all     {plan, fingerprint, lines?, hours?}: it, or less of it;
                                    {same: PROPOSAL, fingerprint}: calls like this one, which they approved,
                                    until they write to its member again
    trust/dismiss  person → all     {plan}: not approved, or over
    trust/rule     approver → all   {state: "plan", plan: {…}}: what became of it

A plan ends with its time, by a person, by who laid it out, when its member leaves, is removed, cleared,
restarted or shut down. Its rules go together: whatever rule names a plan that is not active is removed. What
was sent while the approver was away counts if it ends something; an approval has to be given again. Whether
a member left meanwhile and came back nobody told, so no plan outlives the approver that it was given to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from moot.errors import UsageError
from moot.participant.connection.roster import PresenceEvent
from moot.protocol.envelope import Envelope, rfc3339
from moot.protocol.operation import Json
from moot.trust.approver.call_memory import is_usual_work
from moot.trust.checks.narrowing_proof import find_wider_part
from moot.trust.history.proposal_case import Case
from moot.trust.learning.learner import add_rule
from moot.trust.rules.plan import Plan, PlanRecord, cut_plan, read_plan
from moot.trust.rules.rule_words import join_names
from moot.trust.rules.rule_yaml import MAX_RULES
from moot.trust.rules.store_records import RuleUses
from moot.values.kinds import ValuePattern, recognise, stores_texts

if TYPE_CHECKING:
    from moot.trust.approver.approver import Approver

log = logging.getLogger(__name__)

# Of one member; older ones have to be decided or withdrawn first.
MAX_OPEN_PLANS: Final = 5
# A plan that nobody decides is over after a day, as a proposal is.
OPEN_SECONDS: Final = 86_400.0
# "The same for the rest of this task" in hours and calls, also of a tool that destroys something.
TASK_HOURS: Final = 4
TASK_CALLS: Final = 20
DESTROYING_HOURS: Final = 2
DESTROYING_CALLS: Final = 10
_CONTROLS: Final = ("participant/clear", "participant/restart", "participant/shutdown")


class PlanCommands:
    """The plans of one space; the gateway has checked that senders may send what they send."""

    def __init__(self, approver: Approver, clock: Callable[[], float]) -> None:
        self._approver = approver
        self._store = approver.store
        self._clock = clock
        # Those that an approver before us carried out.
        self._earlier = self._records("active")
        approver.space.roster.on_change(self._on_presence)
        self.drop_stale_rules()

    # What is said

    def note_endings(self, envelope: Envelope) -> None:
        """End the plans that a message to their member, or its removal, clearing or restart ends."""
        payload, by, kind = envelope.payload, envelope.sender, envelope.kind
        if kind == "chat" and by in self._store.people:
            for record in self._records(ends_with_message=True):
                if not envelope.to or record.plan.member in envelope.to:
                    self._end(record, f"{by} wrote to {record.plan.member} again")
        elif kind == "space/kick":
            member = str(payload.get("participant_id"))
            self._end_all(member, f"{by} removed {member}")
        elif kind in _CONTROLS:
            for member in envelope.to:
                self._end_all(member, f"{kind.partition('/')[2]} of {member} by {by}")

    def lay_out(self, envelope: Envelope) -> None:
        payload, by = envelope.payload, envelope.sender
        if "withdraw" in payload:
            record = self._find(payload["withdraw"])
            if by not in (record.plan.by, record.plan.member):
                raise UsageError("only who laid a plan out withdraws it")
            self._end(record, f"withdrawn by {by}", about=envelope.id)
            return
        if envelope.id in self._store.plans:
            return
        plan = read_plan(payload, id=envelope.id, by=by)
        if plan.member != by and by not in self._store.people:
            raise UsageError("only people lay out plans for other members; leave `member` out")
        own = [each for each in self._records("open") if each.plan.member == plan.member]
        if len(own) >= MAX_OPEN_PLANS:
            raise UsageError(f"{MAX_OPEN_PLANS} plans of {plan.member} wait for a decision; withdraw one")
        record = self._store.plans[plan.id] = PlanRecord(plan, self._clock())
        self._store.save()
        self._announce(record, about=envelope.id)

    def accept(self, envelope: Envelope) -> None:
        payload = envelope.payload
        record = self._find(payload["plan"])
        if record.state != "open":
            raise UsageError("it was decided before")
        if payload.get("fingerprint") != record.plan.fingerprint:
            raise UsageError("it is another one than you saw; look at it again: moot plan show")
        lines, hours = payload.get("lines"), payload.get("hours")
        accepted = cut_plan(record.plan, lines=lines, hours=hours)
        self._check_narrower(record.plan, accepted, lines)
        self._check_person(envelope.sender, record.plan)
        before = record.accepted_by if record.accepted == accepted else ()
        by = self._store.people_with(before, envelope.sender)
        record.accepted, record.accepted_by = accepted, by
        if len(by) < self._store.accepting_people:
            self._store.save()
            self._announce(record, about=envelope.id)
            return
        self._activate(record, about=envelope.id)
        self._approver.apply_to(record.plan.member)

    def _check_person(self, sender: str, plan: Plan) -> None:
        if sender not in self._store.people:
            raise UsageError("only people approve plans")
        if sender == plan.member:
            raise UsageError("nobody approves a plan for their own calls")

    def _check_narrower(self, laid_out: Plan, accepted: Plan, lines: Json) -> None:
        numbers = [each["line"] for each in lines] if lines is not None else range(1, len(laid_out.lines) + 1)
        if len(set(numbers)) < len(numbers):
            raise UsageError("a line is named twice")
        if accepted.hours > laid_out.hours:
            raise UsageError(f"hours may only be less than {laid_out.hours:g}; lay out a plan of your own")
        before = laid_out.rules(by=[laid_out.by], now=0.0)
        after = cut_plan(accepted, hours=laid_out.hours).rules(by=[laid_out.by], now=0.0)
        for number, rule in zip(numbers, after, strict=True):
            wider = find_wider_part(rule, before[number - 1])
            if wider is not None:
                raise UsageError(
                    f"line {number} may allow more than was laid out, in: {wider}. Lay out a plan of your own"
                )

    def accept_same(self, envelope: Envelope) -> None:
        """Calls like one that this person has just approved, for the rest of the task."""
        payload, store = envelope.payload, self._store
        plan = self.plan_like(str(payload["same"]))
        self._check_person(envelope.sender, plan)
        decision = self._approver.ledger.get(str(payload["same"]))
        if decision is None or decision.verdict != "fulfilled" or decision.by != envelope.sender:
            raise UsageError("approve the call first; then calls like it can be approved")
        if decision.by_quorum or store.accepting_people > 1:
            raise UsageError("several people decide such calls together")
        if payload.get("fingerprint") != plan.fingerprint:
            raise UsageError("it is another one than you saw; look at the call again")
        if plan.id in store.plans:
            raise UsageError("it was approved before")
        record = PlanRecord(plan, self._clock(), ends_with_message=True)
        record.accepted, record.accepted_by = plan, (envelope.sender,)
        self._activate(record, about=envelope.id)

    def plan_like(self, proposal: str) -> Plan:
        """The plan of one line for calls like a proposal; raises UsageError if there is none."""
        decision = self._approver.ledger.get(proposal)
        if decision is None:
            raise UsageError(f"nothing is known of a proposal {proposal!r}")
        case, origins = decision.case, self._approver.origins
        destroys = "destroys" in origins.effects_of(case)
        return plan_for_task(case, steering_in(origins.finding(decision.id)), destroys=destroys)

    def dismiss(self, envelope: Envelope) -> None:
        record = self._find(envelope.payload["plan"])
        word = "ended" if record.state == "active" else "not approved"
        reason = envelope.payload.get("reason")
        why = f"{word} by {envelope.sender}{f': {reason}' if isinstance(reason, str) and reason else ''}"
        self._end(record, why, about=envelope.id)

    # What becomes of them

    def _activate(self, record: PlanRecord, *, about: str) -> None:
        store, now = self._store, self._clock()
        plan = record.accepted or record.plan
        rules = plan.rules(by=record.accepted_by, now=now)
        if store.fault is not None:
            raise UsageError(f"correct {store.rules_file} first: {store.fault}")
        if len(store.rules) + len(rules) > MAX_RULES:
            raise UsageError(f"there are {len(store.rules)} rules, and {MAX_RULES} are the most")
        record.plan, record.state, record.ends_at = plan, "active", rules[0].limits.expires_at
        # First the plan, then its rules: rules without a plan are removed, and a plan alone allows nothing.
        store.plans[plan.id] = record
        store.uses |= {rule.name: RuleUses() for rule in rules}
        store.mark_reviewed([rule.name for rule in rules], now)
        store.save()
        kept = store.rules
        for rule in reversed(rules):
            # Before those that go by origins, which would ask first.
            kept = add_rule(kept, rule)
        store.set_rules(kept)
        store.mark_reviewed([rule.name for rule in rules], now)
        store.save()
        self._announce(record, about=about)
        self._approver.tool_watcher.pin(rules)

    def _end(self, record: PlanRecord, why: str, *, about: str | None = None) -> None:
        if record.state == "ended":
            raise UsageError(f"it is over: {record.why}")
        record.state, record.why = "ended", why
        self._store.save()
        self.drop_stale_rules()
        log.info("plan ended", extra={"plan": record.plan.id, "why": why})
        self._announce(record, about=about)

    def _end_all(self, member: str, why: str) -> None:
        for record in self._records():
            if record.plan.member == member:
                self._end(record, why)

    def end_expired(self) -> None:
        """End plans whose time is over, and those that nobody decided for a day."""
        now = self._clock()
        for record in self._records():
            if record.state == "open" and now >= record.at + OPEN_SECONDS:
                self._end(record, "nobody decided it")
            elif record.ends_at is not None and now >= record.ends_at:
                self._end(record, "its time is over")

    def drop_stale_rules(self) -> None:
        """Remove rules of plans that are not active."""
        active = {record.plan.id for record in self._records("active")}
        kept = [rule for rule in self._store.rules if rule.origin.plan in (None, *active)]
        if len(kept) == len(self._store.rules):
            return
        try:
            self._store.set_rules(kept)
        except UsageError as fault:
            # Somebody is editing the file: no rule of it is active, and it is tried again when it is read.
            log.warning("rules of plans that are over are still in the file", extra={"why": str(fault)})

    def _on_presence(self, event: PresenceEvent) -> None:
        if event.event in ("leave", "refreshed"):
            self.end_absent()

    def end_absent(self) -> None:
        """End the plans of members who are not here; what nobody approved yet waits for them."""
        roster = self._approver.space.roster
        here = {member.name for member in roster.values()}
        for record in self._records("active") if roster.is_complete else ():
            if record.plan.member not in here:
                self._end(record, f"{record.plan.member} left")

    def end_earlier(self) -> None:
        """End those of an earlier run, once what was missed has been looked at."""
        earlier, self._earlier = self._earlier, []
        for record in earlier:
            if record.state == "active":
                self._end(record, f"the approver was away, and {record.plan.member} may have left meanwhile")

    # Telling

    def _records(
        self, state: str | None = None, *, ends_with_message: bool | None = None
    ) -> list[PlanRecord]:
        """Those that are not over; of one state, or that end with a message, if that is said."""
        return [
            each
            for each in self._store.plans.values()
            if each.state != "ended"
            and state in (None, each.state)
            and ends_with_message in (None, each.ends_with_message)
        ]

    def _find(self, id: Json) -> PlanRecord:
        found = self._store.plans.get(id) if isinstance(id, str) else None
        if found is None:
            raise UsageError("there is no such plan; list them: moot plans")
        return found

    def report(self, proposal: str | None = None) -> dict[str, Json]:
        """All plans that are known, the newest last; or what "the same for the rest of this task" would allow
        for a proposal (raises UsageError).
        """
        if proposal is None:
            return {"plans": [self._describe(each) for each in self._store.plans.values()]}
        plan = self.plan_like(proposal)
        return {"same": {**plan.as_json(), "fingerprint": plan.fingerprint, "words": plan.line_texts()}}

    def _describe(self, record: PlanRecord) -> dict[str, Json]:
        plan, tally = record.plan, self._approver.decider.tally
        names = [plan.rule_name(number) for number in range(1, len(plan.lines) + 1)]
        told: dict[str, Any] = {
            **plan.as_json(),
            "state": record.state,
            "fingerprint": plan.fingerprint,
            "words": plan.line_texts(),
            "used": [tally.count(name) for name in names],
            "laid_out_at": rfc3339(record.at),
            "why": record.why,
        }
        if record.ends_at is not None:
            told["ends_at"] = rfc3339(record.ends_at)
        if record.accepted_by:
            told |= {
                "accepted_by": list(record.accepted_by),
                "accepting_people": self._store.accepting_people,
            }
        if record.ends_with_message:
            told["ends_with_message"] = True
        return told

    def _announce(self, record: PlanRecord, *, about: str | None = None) -> None:
        by, plan = join_names(record.accepted_by), record.plan
        words = {"open": "waits for people", "active": f"approved by {by}", "ended": f"over: {record.why}"}
        why = f"plan “{plan.task}” of {plan.member} {words[record.state]}"
        told: dict[str, Json] = {"state": "plan", "why": why, "plan": self._describe(record)}
        self._approver.send("trust/rule", told, about=about or plan.id)


def plan_for_task(case: Case, steering: Mapping[str, bool], *, destroys: bool = False) -> Plan:
    """The plan behind "the same for the rest of this task"; raises UsageError.

    The same tool of the same member with the same values. Only texts that people or models write (a message,
    a body, what is stored in a file) may differ, where they steer nothing, as `steering` says of each: as
    words of a language, or as any text where the tool only stores it. Of tools that destroy something, only
    commands and texts that are stored, and less often.
    """
    if case.method != "tools/call" or case.tool is None or len(case.to) != 1 or case.unexpected_fields:
        raise UsageError("it is not a plain call of one tool of one member")
    if destroys and not is_usual_work(case):
        raise UsageError(f"{case.tool} can destroy something, so people decide each call of it")
    varying = {name: slot for name in case.arguments if (slot := _slot(case, name, steering))}
    line: dict[str, Json] = {
        "to": case.to[0],
        "tool": case.tool,
        "arguments": {name: value for name, value in case.arguments.items() if name not in varying},
        "count": DESTROYING_CALLS if destroys else TASK_CALLS,
    }
    if varying:
        line["text"] = varying
    payload: dict[str, Json] = {
        "task": f"{case.tool[:200]}, for the rest of the task",
        "hours": DESTROYING_HOURS if destroys else TASK_HOURS,
        "lines": [line],
    }
    return read_plan(payload, id=f"same-{case.id}", by=case.proposer)


def steering_in(finding: Mapping[str, Json] | None) -> dict[str, bool]:
    """Of each argument of a call whether it steers, as people see it; empty if that is not known."""
    found: dict[str, bool] = {}
    for each in (finding or {}).get("arguments", ()):
        name = each["path"].partition(".")[0].partition("[")[0]
        if not name.endswith(" (name)"):
            found[name] = found.get(name, False) or each["steers"]
    return found


def _slot(case: Case, name: str, steering: Mapping[str, bool]) -> str | None:
    """What a text may be instead; None if it stays as it is."""
    value = case.arguments[name]
    if (
        not isinstance(value, str)
        or steering.get(name, True)
        or recognise(name, [value], tool=case.tool) != "text"
    ):
        return None
    is_stored = stores_texts(name, case.tool) or (
        name.lower().endswith("text") and stores_texts("content", case.tool)
    )
    slots = ["<prose>", "<lines>", *(["<text>"] if is_stored else [])]
    return next((slot for slot in slots if ValuePattern("text", [slot]).admits(value)), None)
