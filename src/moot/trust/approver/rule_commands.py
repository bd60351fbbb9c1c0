"""Commands of people about rules: accept, narrow, dismiss, stop, resume; and the approver's answers.

No command fails silently: whatever cannot be done is answered with a chat message about the envelope.
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
from moot.trust.approver.acceptance import Acceptance
from moot.trust.approver.origin_commands import lines_that_ignore, set_tools
from moot.trust.approver.rule_reviews import MIN_DECISIONS
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_store import ALL_RULES
from moot.trust.rules.rule_words import count_text, join_names
from moot.trust.rules.rule_writer import rule_as_json
from moot.trust.rules.store_records import PendingAcceptance, RuleStop
from moot.trust.rules.tripwires import Complaint

if TYPE_CHECKING:
    from moot.trust.approver.approver import Approver

log = logging.getLogger(__name__)

# Changes of the file that are announced one by one; more are only counted.
MAX_ANNOUNCED: Final = 20
NOTHING: Final[Mapping[str, Json]] = {}


class RuleCommands:
    """Carries out commands; the gateway has checked that their senders are allowed to send them."""

    def __init__(self, approver: Approver, clock: Callable[[], float]) -> None:
        self._approver = approver
        self._store = approver.store
        self.clock = clock
        self._acceptance = Acceptance(self._store, approver.send)
        # How many decisions of each rule people were last asked to review.
        self._announced_reviews: dict[str, int] = {}

    def process(self, envelope: Envelope) -> None:
        match envelope.kind:
            case "trust/stop":
                self.stop(envelope)
            case "trust/accept":
                self._accept(envelope)
            case "trust/dismiss":
                self._acceptance.dismiss(envelope)
            case "capability/revoke":
                grant = envelope.payload.get("grant_id")
                if isinstance(grant, str):
                    self._acceptance.forget_grant(grant)

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
        if rule is not None:
            if rule in self._store.suspensions:
                # Whoever wanted to resume it did not know of this.
                if self._store.resuming.pop(rule, None) is not None:
                    self._store.save()
                self.announce_rule(rule, "suspended", self._store.suspensions[rule].why, about=envelope.id)
            elif rule == OPINION_RULE:
                self._answer(envelope, "that was a second opinion, no rule: its no rejects nothing any more")
            elif self._store.rule(rule) is None:
                self._answer(
                    envelope, f"not stopped: there is no rule {rule}; omit the name to stop all rules"
                )
            else:
                self._approver.suspender.trip(Complaint(by, words, envelope.id, rule=rule))
            return
        self.stop_all(by, words, about=envelope.id)

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
        if self._store.stopped is None:
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
        """Who resumes a rule, or all rules, once they are as many as have to accept one; None until then.

        Who may no longer accept rules does not count any more, and nobody counts twice.
        """
        store = self._store
        before = [each for each in store.resuming.pop(name, ()) if each in store.people]
        by = tuple(dict.fromkeys((*before, envelope.sender)))
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

    # Suggestions and suspensions

    def _accept(self, envelope: Envelope) -> None:
        payload = envelope.payload
        if payload.get("resume") is True:
            self._resume_all(envelope)
            return
        name = payload.get("lift")
        if isinstance(name, str):
            self._resume_rule(name, envelope)
            return
        if "observe" in payload:
            self._set_observe(payload["observe"], payload.get("on"), envelope)
            return
        if isinstance(name, list):
            self._resume_rules(name, envelope)
            return
        for key, act in (
            ("reviewed", self._confirm_review),
            ("tools", self._set_tools),
            ("ignore", self._ignore_arguments),
            ("matters", self._ignore_arguments),
            ("again", self._remember),
            ("remove", self._remove_rule),
        ):
            if payload.get(key) is not None:
                act(payload[key], envelope)
                return
        before = self._store.rules
        try:
            rule = self._acceptance.accept(envelope, self.clock())
        except UsageError as fault:
            self._answer(envelope, f"not accepted: {fault}")
            return
        if isinstance(rule, PendingAcceptance):
            waiting = self._store.open_suggestion(payload["suggestion"])
            self._approver.send("trust/suggestion", waiting, about=envelope.id)
            return
        if rule is None:
            done: dict[str, Json] = {"suggestion": payload["suggestion"], "reason": "granted"}
            self._approver.send("trust/dismiss", done, about=envelope.id)
            return
        people = join_names([name for name in (rule.origin.accepted_by, *rule.origin.seconded_by) if name])
        for old in before:
            if old.name not in {each.name for each in self._store.rules}:
                gone: dict[str, Json] = {"state": "removed", "rule": old.name}
                self._approver.send("trust/rule", gone | {"why": f"replaced by {rule.name}"})
        self.announce_rule(rule.name, "active", f"accepted by {people}", about=envelope.id)
        self._approver.pin([rule])

    def _resume_rule(self, name: str, envelope: Envelope) -> None:
        rule = next((rule for rule in self._store.all_rules if rule.name == name), None)
        if rule is None or name not in self._store.suspensions:
            self._answer(envelope, f"not resumed: there is no suspended rule {name}")
        elif self._acceptance.is_about(rule, envelope.sender):
            self._answer(envelope, "not resumed: nobody can resume a rule for their own proposals")
        elif (by := self._note_resuming(name, envelope)) is None:
            why = self._store.suspensions[name].why
            self.announce_rule(name, "suspended", why, about=envelope.id, more=self._who_resumes(name))
        else:
            del self._store.suspensions[name]
            self._store.mark_reviewed([name], self.clock())
            self._store.save()
            self.announce_rule(name, "lifted", f"resumed by {join_names(by)}", about=envelope.id)
            self._approver.pin([rule])

    def _set_observe(self, name: Json, on: Json, envelope: Envelope) -> None:
        """Let a rule only observe, or decide again: that as many have to want as accept a rule."""
        store = self._store
        rule = next((rule for rule in store.rules if rule.name == name), None)
        state = "suspended" if rule is not None and rule.name in store.suspensions else "active"
        if rule is None or not isinstance(on, bool):
            self._answer(envelope, f"not changed: there is no rule {name}, or `on` is not true or false")
        elif rule.observe is on:
            now = "only observes" if on else "decides"
            self.announce_rule(rule.name, state, f"it {now} already", about=envelope.id)
        elif not on and self._acceptance.is_about(rule, envelope.sender):
            self._answer(envelope, "not changed: nobody can let a rule decide about their own proposals")
        elif not on and (by := self._note_resuming(rule.name, envelope)) is None:
            why = "it only observes until another person lets it decide, too"
            self.announce_rule(rule.name, state, why, about=envelope.id, more=self._who_resumes(rule.name))
        else:
            people = join_names([envelope.sender] if on else by or ())
            changed = replace(rule, observe=on)
            try:
                store.set_rules(changed if each is rule else each for each in store.rules)
            except UsageError as fault:
                self._answer(envelope, f"not changed: {fault}")
                return
            store.mark_reviewed([rule.name], self.clock())
            store.save()
            why = f"{people} lets it {'only observe' if on else 'decide'}"
            self.announce_rule(rule.name, state, why, about=envelope.id)
            if not on:
                self._approver.pin([changed])

    def _resume_rules(self, names: list[Json], envelope: Envelope) -> None:
        """Several suspended rules at once; one answer tells which could not be resumed."""
        names = list(map(str, names))
        rules = {rule.name: rule for rule in self._store.rules}
        own = [
            name
            for name in names
            if name in rules and self._acceptance.is_about(rules[name], envelope.sender)
        ]
        for name in names:
            if name in self._store.suspensions and name not in own:
                self._resume_rule(name, envelope)
        gone = [str(name) for name in names if name not in rules]
        if own or gone:
            why = "nobody can resume a rule for their own proposals" if own else "there is no such rule"
            self._answer(envelope, f"not resumed: {join_names(map(str, own or gone))}: {why}")

    def _remove_rule(self, name: Json, envelope: Envelope) -> None:
        """A person removes a rule for good. One that rejects or asks protects somebody: that takes as many
        people as to accept one, and nobody does it for their own proposals.
        """
        store, by = self._store, envelope.sender
        rule = store.rule(name) if isinstance(name, str) else None
        if rule is None:
            self._answer(envelope, f"not removed: there is no rule {name}")
        elif store.remembered.get(rule.name) is not None:
            self._approver.memory.forget([rule.name], f"removed by {by}", about=envelope.id)
        elif rule not in store.rules:
            self._answer(
                envelope, f"not removed: {rule.name} stands in a file of policies; edit that instead"
            )
        elif rule.decision != "approve" and (rule.proposer is None or rule.covers_proposer(by)):
            self._answer(envelope, f"not removed: it may {rule.decision} what you propose; others remove it")
        elif rule.decision != "approve" and store.accepting_people > 1:
            people = f"{store.accepting_people} people have to agree here"
            self._answer(envelope, f"not removed: {people}, so edit {store.rules_file.name} instead")
        else:
            try:
                store.set_rules(each for each in store.rules if each.name != rule.name)
            except UsageError as fault:
                self._answer(envelope, f"not removed: {fault}")
                return
            if rule.origin.suggestion is not None:
                # It would be suggested again at once.
                store.dismissed = (*store.dismissed, rule)
                store.save()
            gone: dict[str, Json] = {"state": "removed", "rule": rule.name, "why": f"removed by {by}"}
            self._approver.send("trust/rule", gone, about=envelope.id)

    def _remember(self, _: Json, envelope: Envelope) -> None:
        """A person wants this very call approved again."""
        try:
            found = self._approver.memory.remember(envelope)
        except UsageError as fault:
            self._answer(envelope, f"not remembered: {fault}")
            return
        if isinstance(found, Rule):
            people = join_names([found.origin.accepted_by or "", *found.origin.seconded_by])
            self.announce_rule(
                found.name, "active", f"{people} wants this call approved again", about=envelope.id
            )
            # An agent can be quicker than who approves: the next such call may be there already.
            self._approver.apply_to(str(found.proposer))
            return
        count = self._store.accepting_people
        self._answer(envelope, f"not remembered yet: {len(found)} of {count} people want it approved again")

    def _ignore_arguments(self, changes: Json, envelope: Envelope) -> None:
        """A person says which arguments of tools do not matter, or matter again."""
        undo = "matters" in envelope.payload
        try:
            lines = lines_that_ignore(self._store, self._approver.tool_watcher, changes, undo=undo)
        except UsageError as fault:
            self._answer(envelope, f"not changed: {fault}")
            return
        self._set_tools(lines, envelope)

    def _set_tools(self, changes: Json, envelope: Envelope) -> None:
        """A person says what tools do."""
        try:
            set_tools(self._store, self._approver.tool_watcher, changes)
        except UsageError as fault:
            self._answer(envelope, f"not changed: {fault}")
            return
        why = f"{envelope.sender} said what {join_names(list(changes)[:MAX_ANNOUNCED])} does"
        log.info("tools described", extra={"by": envelope.sender, "tools": list(changes)[:MAX_ANNOUNCED]})
        told: dict[str, Json] = {"state": "tools", "by": envelope.sender, "why": why, "tools": changes}
        self._approver.send("trust/rule", told, about=envelope.id)
        self._approver.look_again(tools_changed=True)

    # Reviews

    def announce_review(self, rule: Rule) -> None:
        """Ask people to look at what a rule decided; once for each batch."""
        count = len(self._approver.reviews.unreviewed(rule.name))
        last = self._announced_reviews.get(rule.name)
        if last is not None and last <= count < last + MIN_DECISIONS:
            return
        self._announced_reviews[rule.name] = count
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

    def _confirm_review(self, ids: Json, envelope: Envelope) -> None:
        """A person found decisions of rules right. One person is enough: it gives a rule nothing new."""
        reviews = self._approver.reviews
        if not isinstance(ids, list) or not ids or not all(isinstance(id, str) for id in ids):
            self._answer(envelope, "not reviewed: `reviewed` has to be a list of ids of proposals")
            return
        rules = {rule.name: rule for rule in self._store.all_rules}
        own = {
            name
            for name in (reviews.rule_of(id) for id in ids)
            if name in rules and self._acceptance.is_about(rules[name], envelope.sender)
        }
        if own:
            self._answer(envelope, "not reviewed: nobody can review a rule for their own proposals")
            return
        found = reviews.confirm(ids)
        if not found:
            self._answer(envelope, "not reviewed: no rule has decided these, or they were reviewed before")
        for name, count in found.items():
            self._announced_reviews.pop(name, None)
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
            send("trust/rule", {"state": "removed", "rule": name, "why": f"no longer in {file}"})
        if max(len(changed), len(gone)) > MAX_ANNOUNCED:
            text = f"{file} has {len(changed)} new or changed rules and {len(gone)} fewer"
            send("chat", {"text": text, "format": "plain"})
        self._approver.pin([new[name] for name in changed])

    # Announcements and answers

    def announce_rule(
        self, name: str, state: str, why: str, *, about: str | None = None, more: Mapping[str, Json] = NOTHING
    ) -> None:
        rule = self._store.rule(name)
        payload: dict[str, Json] = {"state": state, "why": why, "rule": name, **more}
        if rule is not None:
            payload["rule"] = rule_as_json(rule)
        self._approver.send("trust/rule", payload, about=about)

    def _answer(self, envelope: Envelope, text: str) -> None:
        words: dict[str, Json] = {"text": text, "format": "plain"}
        self._approver.send("chat", words, to=envelope.sender, about=envelope.id)
