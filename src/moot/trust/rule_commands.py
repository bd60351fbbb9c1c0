"""What people say to rules: accept, narrow, dismiss, stop, lift, resume; and what the approver answers.

Nothing said here is lost silently: whatever cannot be done is answered in a chat that names the envelope.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from moot.errors import UsageError
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.trust.acceptance import Acceptance
from moot.trust.rule_store import RuleStop, RuleStore
from moot.trust.rule_yaml import rule_as_json
from moot.trust.rules import Rule
from moot.trust.tripwires import Complaint, Event

log = logging.getLogger(__name__)

# Changes of the file that are told one by one; who rewrites it whole is told how many there are.
MAX_TOLD: Final = 20


class CommandResult(Protocol):
    """What of an approver is steered."""

    @property
    def book(self) -> RuleStore: ...
    def say(self, kind: str, payload: dict[str, Json], *, to: str = "", about: str | None = None) -> None: ...
    def trip(self, event: Event, *, at: float | None = None) -> int: ...
    def rule_behind(self, id: str) -> str | None: ...
    def pin(self, rules: Iterable[Rule]) -> None: ...


class RuleCommands:
    """Carries out what people say; the gateway has seen to it that they may say it."""

    def __init__(self, approver: CommandResult, clock: Callable[[], float]) -> None:
        self._approver = approver
        self._book = approver.book
        self._clock = clock
        self._acceptance = Acceptance(self._book, approver.say)

    def hear(self, envelope: Envelope) -> None:
        match envelope.kind:
            case "trust/stop" if self._book.stopped is not None and not self._names_rule(envelope):
                self._answer(envelope, "all rules are already stopped")
            case "trust/stop":
                self.stop(envelope, self._clock())
            case "trust/accept":
                self._accept(envelope)
            case "trust/dismiss":
                self._acceptance.dismiss(envelope)
            case "capability/revoke":
                grant = envelope.payload.get("grant_id")
                if isinstance(grant, str):
                    self._acceptance.revoked(grant)

    # The switch

    def _names_rule(self, envelope: Envelope) -> bool:
        behind = (self._approver.rule_behind(id) for id in envelope.correlation_id)
        return isinstance(envelope.payload.get("rule"), str) or any(name is not None for name in behind)

    def stop(self, envelope: Envelope, at: float) -> None:
        """Suspend the rule that is meant, or stop them all; `at` is when it was said."""
        payload, by = envelope.payload, envelope.sender
        why = payload.get("reason")
        words = why if isinstance(why, str) and why else "no reason given"
        rule = payload.get("rule")
        if not isinstance(rule, str):
            found = (self._approver.rule_behind(id) for id in envelope.correlation_id)
            rule = next((name for name in found if name is not None), None)
            if rule is None and envelope.correlation_id:
                # Rather all than none: somebody objects to something that was done.
                words += f" (no rule is known behind {envelope.correlation_id[0]}, so all rules are stopped)"
        if rule is not None:
            if rule in self._book.suspensions:
                self._answer(envelope, f"rule {rule} is already suspended")
            elif all(each.name != rule for each in self._book.rules):
                self._answer(
                    envelope, f"not stopped: there is no rule {rule}; omit the name to stop all rules"
                )
            else:
                self._approver.trip(Complaint(by, words, envelope.id, rule=rule), at=at)
            return
        if at <= self._book.resumed or self._book.stopped is not None:
            return
        self._book.stopped = RuleStop(by, words, at)
        self._book.save()
        log.warning("all rules stopped", extra={"by": by, "why": words})
        self._approver.say("trust/rule", {"state": "stopped", "by": by, "why": words}, about=envelope.id)

    def _resume(self, envelope: Envelope) -> None:
        if self._book.stopped is None:
            self._answer(envelope, "rules were not stopped")
            return
        self._book.stopped = None
        self._book.resumed = self._clock()
        self._book.save()
        self._approver.say("trust/rule", {"state": "resumed", "by": envelope.sender}, about=envelope.id)

    # Suggestions and suspensions

    def _accept(self, envelope: Envelope) -> None:
        payload, by = envelope.payload, envelope.sender
        if payload.get("resume") is True:
            self._resume(envelope)
            return
        name = payload.get("lift")
        if isinstance(name, str):
            self._lift(name, envelope)
            return
        try:
            rule = self._acceptance.accept(envelope, self._clock())
        except UsageError as fault:
            self._answer(envelope, f"not accepted: {fault}")
            return
        if rule is None:
            done: dict[str, Json] = {"suggestion": payload["suggestion"], "reason": "granted"}
            self._approver.say("trust/dismiss", done, about=envelope.id)
            return
        self.say_rule(rule.name, "active", f"accepted by {by}", about=envelope.id)
        self._approver.pin([rule])

    def _lift(self, name: str, envelope: Envelope) -> None:
        rule = next((rule for rule in self._book.rules if rule.name == name), None)
        if rule is None or name not in self._book.suspensions:
            self._answer(envelope, f"not resumed: there is no suspended rule {name}")
        elif self._acceptance.is_for(rule, envelope.sender):
            self._answer(envelope, "not resumed: nobody can resume a rule for their own proposals")
        else:
            del self._book.suspensions[name]
            self._book.look_at([name], self._clock())
            self._book.save()
            self.say_rule(name, "lifted", f"resumed by {envelope.sender}", about=envelope.id)
            self._approver.pin([rule])

    def reread(self, before: tuple[Rule, ...], *, was_broken: bool) -> None:
        """The file of rules is another one: tell what changed. Whoever edited it has looked at it."""
        book = self._book
        if book.fault is not None:
            log.error("rules cannot be read, so none is active", extra={"why": book.fault})
            self._approver.say("trust/rule", {"state": "stopped", "why": book.fault})
            return
        old = {rule.name: rule for rule in before}
        new = {rule.name: rule for rule in book.rules}
        changed = [name for name in new if new[name] != old.get(name)]
        book.look_at(changed, self._clock())
        book.save()
        log.info("rules read", extra={"rules": len(new), "changed": len(changed)})
        say, file = self._approver.say, book.rules_file.name
        if was_broken and book.stopped is None:
            say("trust/rule", {"state": "resumed", "why": f"{file} can be read again"})
        gone = [name for name in old if name not in new]
        for name in changed[:MAX_TOLD]:
            if name not in book.suspensions:
                self.say_rule(name, "active", f"written in {file}")
        for name in gone[:MAX_TOLD]:
            say("trust/rule", {"state": "removed", "rule": name, "why": f"no longer in {file}"})
        if max(len(changed), len(gone)) > MAX_TOLD:
            told = f"{file} has {len(changed)} new or changed rules and {len(gone)} fewer"
            say("chat", {"text": told, "format": "plain"})
        self._approver.pin([new[name] for name in changed])

    # Speaking

    def say_rule(self, name: str, state: str, why: str, *, about: str | None = None) -> None:
        rule = next((rule for rule in self._book.rules if rule.name == name), None)
        payload: dict[str, Json] = {"state": state, "why": why, "rule": name}
        if rule is not None:
            payload["rule"] = rule_as_json(rule)
        self._approver.say("trust/rule", payload, about=about)

    def _answer(self, envelope: Envelope, text: str) -> None:
        words: dict[str, Json] = {"text": text, "format": "plain"}
        self._approver.say("chat", words, to=envelope.sender, about=envelope.id)
