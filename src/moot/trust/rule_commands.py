"""Commands of people about rules: accept, narrow, dismiss, stop, resume; and the approver's answers.

No command fails silently: whatever cannot be done is answered with a chat message about the envelope.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from moot.errors import UsageError
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.trust.acceptance import Acceptance
from moot.trust.rule_store import PendingAcceptance, RuleStop, RuleStore
from moot.trust.rule_words import join_names
from moot.trust.rule_yaml import rule_as_json
from moot.trust.rules import Rule
from moot.trust.tripwires import Complaint, Event

log = logging.getLogger(__name__)

# Changes of the file that are announced one by one; more are only counted.
MAX_ANNOUNCED: Final = 20


class CommandTarget(Protocol):
    """What commands need of an approver."""

    @property
    def store(self) -> RuleStore: ...
    def send(
        self, kind: str, payload: dict[str, Json], *, to: str = "", about: str | None = None
    ) -> None: ...
    def trip(self, event: Event, *, at: float | None = None) -> int: ...
    def rule_behind(self, id: str) -> str | None: ...
    def pin(self, rules: Iterable[Rule]) -> None: ...


class RuleCommands:
    """Carries out commands; the gateway has checked that their senders are allowed to send them."""

    def __init__(self, approver: CommandTarget, clock: Callable[[], float]) -> None:
        self._approver = approver
        self._store = approver.store
        self.clock = clock
        self._acceptance = Acceptance(self._store, approver.send)

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
                self.announce_rule(rule, "suspended", self._store.suspensions[rule].why, about=envelope.id)
            elif all(each.name != rule for each in self._store.rules):
                self._answer(
                    envelope, f"not stopped: there is no rule {rule}; omit the name to stop all rules"
                )
            else:
                self._approver.trip(Complaint(by, words, envelope.id, rule=rule))
            return
        self.stop_all(by, words, about=envelope.id)

    def stop_all(self, by: str, why: str, *, about: str | None = None) -> None:
        """Stop all rules until a person resumes them; the first who did is remembered."""
        if self._store.stopped is None:
            self._store.stopped = RuleStop(by, why, self.clock())
            log.warning("all rules stopped", extra={"by": by, "why": why})
        self._store.save()
        stop = self._store.stopped
        self._approver.send("trust/rule", {"state": "stopped", "by": stop.by, "why": stop.why}, about=about)

    def _resume_all(self, envelope: Envelope) -> None:
        if self._store.stopped is None:
            self._answer(envelope, "rules were not stopped")
            return
        self._store.stopped = None
        self._store.save()
        self._approver.send("trust/rule", {"state": "resumed", "by": envelope.sender}, about=envelope.id)

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
        self.announce_rule(rule.name, "active", f"accepted by {people}", about=envelope.id)
        self._approver.pin([rule])

    def _resume_rule(self, name: str, envelope: Envelope) -> None:
        rule = next((rule for rule in self._store.rules if rule.name == name), None)
        if rule is None or name not in self._store.suspensions:
            self._answer(envelope, f"not resumed: there is no suspended rule {name}")
        elif self._acceptance.is_about(rule, envelope.sender):
            self._answer(envelope, "not resumed: nobody can resume a rule for their own proposals")
        else:
            del self._store.suspensions[name]
            self._store.mark_reviewed([name], self.clock())
            self._store.save()
            self.announce_rule(name, "lifted", f"resumed by {envelope.sender}", about=envelope.id)
            self._approver.pin([rule])

    def announce_changes(self, before: tuple[Rule, ...], *, was_broken: bool) -> None:
        """Announce what changed in the rules file. Whoever edited it counts as having reviewed it."""
        store = self._store
        if store.fault is not None:
            log.error("rules cannot be read, so none is active", extra={"why": store.fault})
            self._approver.send("trust/rule", {"state": "stopped", "why": store.fault})
            return
        old = {rule.name: rule for rule in before}
        new = {rule.name: rule for rule in store.rules}
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

    def announce_rule(self, name: str, state: str, why: str, *, about: str | None = None) -> None:
        rule = next((rule for rule in self._store.rules if rule.name == name), None)
        payload: dict[str, Json] = {"state": state, "why": why, "rule": name}
        if rule is not None:
            payload["rule"] = rule_as_json(rule)
        self._approver.send("trust/rule", payload, about=about)

    def _answer(self, envelope: Envelope, text: str) -> None:
        words: dict[str, Json] = {"text": text, "format": "plain"}
        self._approver.send("chat", words, to=envelope.sender, about=envelope.id)
