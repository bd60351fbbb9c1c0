"""Commands of people about rules and plans (accept, narrow, dismiss, stop, resume), and what is answered.

No command fails silently: what cannot be done raises UsageError, and who sent it gets that as a chat message
about the envelope.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from moot.errors import UsageError
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.protocol.opinion import OPINION_RULE
from moot.trust.approver.acceptance import Acceptance, is_about
from moot.trust.approver.origin_commands import lines_that_ignore, set_tools
from moot.trust.approver.plan_commands import PlanCommands
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_json import rule_as_json
from moot.trust.rules.rule_store import ALL_RULES
from moot.trust.rules.rule_words import count_text, join_names
from moot.trust.rules.store_records import PendingAcceptance, RuleStop
from moot.trust.rules.tripwires import Complaint

if TYPE_CHECKING:
    from moot.trust.approver.approver import Approver

log = logging.getLogger(__name__)

# Changes of the file that are announced one by one; more are only counted.
MAX_ANNOUNCED: Final = 20
NOTHING: Final[Mapping[str, Json]] = {}

Command = Callable[[Envelope], None]


class RuleCommands:
    """Carries out commands; the gateway has checked that their senders are allowed to send them."""

    def __init__(self, approver: Approver, plans: PlanCommands, clock: Callable[[], float]) -> None:
        self._approver = approver
        self._store = approver.store
        self._plans = plans
        self.clock = clock
        self._acceptance = Acceptance(self._store)
        # What `trust/accept` can be about, and what is answered if that cannot be done.
        self._accepts: dict[str, tuple[Command, str]] = {
            "plan": (plans.accept, "plan"),
            "same": (plans.accept_same, "plan"),
            "resume": (self._resume_all, "not resumed"),
            "lift": (self._resume_rules, "not resumed"),
            "observe": (self._set_observe, "not changed"),
            "reviewed": (self._confirm_review, "not reviewed"),
            "tools": (lambda said: self._set_tools(said.payload["tools"], said), "not changed"),
            "ignore": (self._ignore_arguments, "not changed"),
            "matters": (self._ignore_arguments, "not changed"),
            "again": (self._remember, "not remembered"),
            "remove": (self._remove_rule, "not removed"),
            "suggestion": (self._accept_suggestion, "not accepted"),
        }

    def process(self, envelope: Envelope, *, was_missed: bool = False) -> None:
        """Carry out a command. Of what was missed only what lays out or ends a plan: an approval has to be
        given again, and nothing is answered, since it may have been before.
        """
        carry_out, refused = self._command(envelope)
        is_late = was_missed and (refused != "plan" or envelope.kind == "trust/accept")
        if carry_out is None or is_late:
            return
        try:
            carry_out(envelope)
        except UsageError as fault:
            if not was_missed:
                self._answer(envelope, f"{refused}: {fault}")

    def _command(self, envelope: Envelope) -> tuple[Command | None, str]:
        """What carries an envelope out, and what is answered if it cannot be; None for all others."""
        payload = envelope.payload
        match envelope.kind:
            case "moot/plan":
                return self._plans.lay_out, "plan"
            case "trust/stop":
                return self.stop, "not stopped"
            case "trust/dismiss" if "plan" in payload:
                return self._plans.dismiss, "plan"
            case "trust/dismiss":
                return self._acceptance.dismiss, "not dismissed"
            case "trust/accept":
                said = (key for key in self._accepts if payload.get(key) not in (None, False))
                return self._accepts[next(said, "suggestion")]
            case "capability/revoke":
                return self._acceptance.forget_grant, ""
        return None, ""

    # Stop and resume

    def stop(self, envelope: Envelope) -> None:
        """Suspend the named rule, or stop all rules, and confirm it once that is written to disk.

        No clock has a say in it, and a second stop is confirmed like the first.
        """
        payload, by = envelope.payload, envelope.sender
        why = payload.get("reason")
        words = why if isinstance(why, str) and why else "no reason given"
        rule = payload.get("rule")
        if not isinstance(rule, str):
            found = (self._approver.rule_behind(id) for id in envelope.correlation_id)
            rule = next((name for name in found if name is not None), None)
            if rule is None and envelope.correlation_id:
                # Somebody objects to a decision, so all rules are stopped rather than none.
                words += f" (no rule is known behind {envelope.correlation_id[0]}, so all rules are stopped)"
        if rule is None:
            self.stop_all(by, words, about=envelope.id)
        elif rule in self._store.suspensions:
            # Whoever wanted to resume it did not know of this.
            if self._store.resuming.pop(rule, None) is not None:
                self._store.save()
            self.announce_rule(rule, "suspended", self._store.suspensions[rule].why, about=envelope.id)
        elif rule == OPINION_RULE:
            raise UsageError("that was a second opinion, no rule: its no rejects nothing any more")
        elif self._store.rule(rule) is None:
            raise UsageError(f"there is no rule {rule}; omit the name to stop all rules")
        else:
            self._approver.trip(Complaint(by, words, envelope.id, rule=rule))

    def stop_all(self, by: str, why: str, *, about: str | None = None) -> None:
        """Stop all rules until a person resumes them; the first who did is remembered."""
        if self._store.stopped is None:
            self._store.stopped = RuleStop(by, why, self.clock())
            log.warning("all rules stopped", extra={"by": by, "why": why})
        self._store.resuming.pop(ALL_RULES, None)
        self._store.save()
        stop = self._store.stopped
        self._approver.send("trust/rule", {"state": "stopped", "by": stop.by, "why": stop.why}, about=about)

    def _resume_all(self, envelope: Envelope) -> None:
        if envelope.payload["resume"] is not True:
            raise UsageError("`resume` has to be true")
        if self._store.stopped is None:
            # Nobody was refused anything.
            self._answer(envelope, "rules were not stopped")
            return
        stop, by = self._store.stopped, self._note_resuming(ALL_RULES, envelope)
        if by is None:
            waiting: dict[str, Json] = {"state": "stopped", "by": stop.by, "why": stop.why}
            self._approver.send("trust/rule", waiting | self._who_resumes(ALL_RULES), about=envelope.id)
            return
        self._store.stopped = None
        self._store.save()
        self._approver.send("trust/rule", {"state": "resumed", "by": join_names(by)}, about=envelope.id)

    def _note_resuming(self, name: str, envelope: Envelope) -> tuple[str, ...] | None:
        """Who resumes a rule, or all rules, once they are as many as have to accept one; None until then."""
        store = self._store
        by = store.people_with(store.resuming.pop(name, ()), envelope.sender)
        if len(by) >= store.accepting_people:
            return by
        store.resuming[name] = by
        store.save()
        return None

    def _who_resumes(self, name: str) -> dict[str, Json]:
        return {
            "resumed_by": list(self._store.resuming[name]),
            "accepting_people": self._store.accepting_people,
        }

    def _resume_rules(self, envelope: Envelope) -> None:
        """One suspended rule, or several at once; one answer tells which could not be resumed."""
        named = envelope.payload["lift"]
        names = list(map(str, named)) if isinstance(named, list) else [str(named)]
        rules = {rule.name: rule for rule in self._store.all_rules}
        own = [name for name in names if name in rules and is_about(rules[name], envelope.sender)]
        for name in names:
            if name in rules and name in self._store.suspensions and name not in own:
                self._resume_rule(rules[name], envelope)
                names = [each for each in names if each != name]
        if own:
            raise UsageError(f"{join_names(own)}: nobody can resume a rule for their own proposals")
        if names:
            raise UsageError(f"there is no suspended rule {join_names(names, joint='or')}")

    def _resume_rule(self, rule: Rule, envelope: Envelope) -> None:
        name, by = rule.name, self._note_resuming(rule.name, envelope)
        if by is None:
            why = self._store.suspensions[name].why
            self.announce_rule(name, "suspended", why, about=envelope.id, more=self._who_resumes(name))
            return
        del self._store.suspensions[name]
        self._store.mark_reviewed([name], self.clock())
        self._store.save()
        self.announce_rule(name, "lifted", f"resumed by {join_names(by)}", about=envelope.id)
        self._approver.tool_watcher.pin([rule])

    # Suggestions and rules

    def _accept_suggestion(self, envelope: Envelope) -> None:
        before = self._store.rules
        rule = self._acceptance.accept(envelope, self.clock())
        send, id = self._approver.send, envelope.payload["suggestion"]
        if isinstance(rule, PendingAcceptance):
            send("trust/suggestion", self._store.open_suggestion(id), about=envelope.id)
            return
        if rule is None:
            send("trust/dismiss", {"suggestion": id, "reason": "granted"}, about=envelope.id)
            return
        now = {each.name for each in self._store.rules}
        for old in before:
            if old.name not in now:
                self.announce_removed(old.name, f"replaced by {rule.name}")
        why = f"accepted by {join_names(rule.origin.people)}"
        self.announce_rule(rule.name, "active", why, about=envelope.id)
        self._approver.tool_watcher.pin([rule])

    def _set_observe(self, envelope: Envelope) -> None:
        """Let a rule only observe, or decide again: that as many have to want as accept a rule."""
        store, name, on = self._store, envelope.payload["observe"], envelope.payload.get("on")
        rule = next((rule for rule in store.rules if rule.name == name), None)
        if rule is None or not isinstance(on, bool):
            raise UsageError(f"there is no rule {name}, or `on` is not true or false")
        by: tuple[str, ...] | None = (envelope.sender,)
        more = NOTHING
        if rule.observe is on:
            why = f"it {'only observes' if on else 'decides'} already"
        elif not on and is_about(rule, envelope.sender):
            raise UsageError("nobody can let a rule decide about their own proposals")
        elif not on and (by := self._note_resuming(rule.name, envelope)) is None:
            why, more = "it only observes until another person lets it decide, too", self._who_resumes(name)
        else:
            changed = replace(rule, observe=on)
            store.set_rules(changed if each is rule else each for each in store.rules)
            store.mark_reviewed([rule.name], self.clock())
            store.save()
            why = f"{join_names(by or ())} lets it {'only observe' if on else 'decide'}"
            if not on:
                self._approver.tool_watcher.pin([changed])
        state = "suspended" if rule.name in store.suspensions else "active"
        self.announce_rule(rule.name, state, why, about=envelope.id, more=more)

    def _remove_rule(self, envelope: Envelope) -> None:
        """A person removes a rule for good. One that rejects or asks protects somebody: that takes as many
        people as to accept one, and nobody does it for their own proposals.
        """
        store, by, name = self._store, envelope.sender, envelope.payload["remove"]
        rule = store.rule(name) if isinstance(name, str) else None
        if rule is None:
            raise UsageError(f"there is no rule {name}")
        if store.remembered.get(rule.name) is not None:
            self._approver.memory.forget([rule.name], f"removed by {by}", about=envelope.id)
            return
        if rule not in store.rules:
            raise UsageError(f"{rule.name} stands in a file of policies; edit that instead")
        if rule.decision != "approve" and (rule.proposer is None or rule.covers_proposer(by)):
            raise UsageError(f"it may {rule.decision} what you propose; others remove it")
        if rule.decision != "approve" and store.accepting_people > 1:
            people = f"{store.accepting_people} people have to agree here"
            raise UsageError(f"{people}, so edit {store.rules_file.name} instead")
        store.set_rules(each for each in store.rules if each.name != rule.name)
        if rule.origin.suggestion is not None:
            # It would be suggested again at once.
            store.dismissed = (*store.dismissed, rule)
            store.save()
        self.announce_removed(rule.name, f"removed by {by}", about=envelope.id)

    def _remember(self, envelope: Envelope) -> None:
        """A person wants this very call approved again."""
        found = self._approver.memory.remember(envelope)
        if isinstance(found, Rule):
            why = f"{join_names(found.origin.people)} wants this call approved again"
            self.announce_rule(found.name, "active", why, about=envelope.id)
            # An agent can be quicker than who approves: the next such call may be there already.
            self._approver.apply_to(str(found.proposer))
            return
        count = self._store.accepting_people
        self._answer(envelope, f"not remembered yet: {len(found)} of {count} people want it approved again")

    def _ignore_arguments(self, envelope: Envelope) -> None:
        """A person says which arguments of tools do not matter, or matter again."""
        undo = "matters" in envelope.payload
        changes = envelope.payload["matters" if undo else "ignore"]
        lines = lines_that_ignore(self._store, self._approver.tool_watcher, changes, undo=undo)
        self._set_tools(lines, envelope)

    def _set_tools(self, changes: Json, envelope: Envelope) -> None:
        """A person says what tools do."""
        set_tools(self._store, self._approver.tool_watcher, changes)
        why = f"{envelope.sender} said what {join_names(list(changes)[:MAX_ANNOUNCED])} does"
        log.info("tools described", extra={"by": envelope.sender, "tools": list(changes)[:MAX_ANNOUNCED]})
        told: dict[str, Json] = {"state": "tools", "by": envelope.sender, "why": why, "tools": changes}
        self._approver.send("trust/rule", told, about=envelope.id)
        self._approver.look_again(tools_changed=True)

    # Reviews

    def announce_review(self, rule: Rule) -> None:
        """Ask people to look at what a rule decided."""
        count = len(self._approver.reviews.unreviewed(rule.name))
        self._announce_reviewed(rule, f"{count_text(count, 'decision')} of it should be reviewed")

    def _announce_reviewed(self, rule: Rule, why: str, *, about: str | None = None) -> None:
        reviews, state = self._approver.reviews, "active"
        if rule.name in self._store.suspensions:
            state, why = "suspended", self._store.suspensions[rule.name].why
        review: dict[str, Json] = {
            "decisions": list(reviews.unreviewed(rule.name)),
            "due": reviews.is_due(rule),
            "left": reviews.left(rule),
        }
        self.announce_rule(rule.name, state, why, about=about, more={"review": review})

    def _confirm_review(self, envelope: Envelope) -> None:
        """A person found decisions of rules right. One person is enough: it gives a rule nothing new."""
        reviews, ids = self._approver.reviews, envelope.payload["reviewed"]
        if not isinstance(ids, list) or not ids or not all(isinstance(id, str) for id in ids):
            raise UsageError("`reviewed` has to be a list of ids of proposals")
        rules = {rule.name: rule for rule in self._store.all_rules}
        named = {name for name in map(reviews.rule_of, ids) if name in rules}
        if any(is_about(rules[name], envelope.sender) for name in named):
            raise UsageError("nobody can review a rule for their own proposals")
        found = reviews.confirm(ids)
        if not found:
            raise UsageError("no rule has decided these, or they were reviewed before")
        for name, count in found.items():
            why = f"{envelope.sender} reviewed {count_text(count, 'decision')}"
            if name in rules:
                self._announce_reviewed(rules[name], why, about=envelope.id)

    def announce_changes(self, before: tuple[Rule, ...], *, was_broken: bool) -> None:
        """Announce what changed in the rules file. Whoever edited it counts as having reviewed it."""
        store = self._store
        if store.fault is not None:
            log.error("rules cannot be read, so none is active", extra={"why": store.fault})
            self._approver.send("trust/rule", {"state": "stopped", "why": store.fault})
            return
        old = {rule.name: rule for rule in before}
        new = {rule.name: rule for rule in store.all_rules}
        changed = [name for name in new if new[name] != old.get(name)]
        store.mark_reviewed(changed, self.clock())
        store.save()
        log.info("rules read", extra={"rules": len(new), "changed": len(changed)})
        send, file = self._approver.send, store.rules_file.name
        if was_broken and store.stopped is None:
            send("trust/rule", {"state": "resumed", "why": f"{file} can be read again"})
        gone = [name for name in old if name not in new]
        for name in changed[:MAX_ANNOUNCED]:
            if name not in store.suspensions:
                self.announce_rule(name, "active", f"written in {file}")
        for name in gone[:MAX_ANNOUNCED]:
            self.announce_removed(name, f"no longer in {file}")
        if max(len(changed), len(gone)) > MAX_ANNOUNCED:
            text = f"{file} has {len(changed)} new or changed rules and {len(gone)} fewer"
            self._approver.say(text)
        self._approver.tool_watcher.pin([new[name] for name in changed])

    # Announcements and answers

    def announce_rule(
        self, name: str, state: str, why: str, *, about: str | None = None, more: Mapping[str, Json] = NOTHING
    ) -> None:
        rule = self._store.rule(name)
        payload: dict[str, Json] = {"state": state, "why": why, "rule": name, **more}
        if rule is not None:
            payload["rule"] = rule_as_json(rule)
        self._approver.send("trust/rule", payload, about=about)

    def announce_removed(self, name: str, why: str, *, about: str | None = None) -> None:
        self._approver.send("trust/rule", {"state": "removed", "rule": name, "why": why}, about=about)

    def _answer(self, envelope: Envelope, text: str) -> None:
        self._approver.say(text, to=envelope.sender, about=envelope.id)
