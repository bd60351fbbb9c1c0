"""What the space learns from decisions, as far as it is said aloud: suggestions and rules (D-92).

Suggestions, rules and what people say to them are ordinary envelopes. This keeps those that were heard, and
says yes or no to them; who makes suggestions, and what a rule does, is the business of their senders.
"""

from __future__ import annotations

import argparse
import json
from collections import OrderedDict
from typing import Final

from moot.errors import UsageError
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json
from moot.tui.operations.operation import Answer, Operation, Seat, short

SUGGESTION: Final = "trust/suggestion"
RULE: Final = "trust/rule"
ACCEPT: Final = "trust/accept"
DISMISS: Final = "trust/dismiss"
STOP: Final = "trust/stop"

# Suggestions and rules that are kept; those that were said last win.
TRUST_KEPT: Final = 512


class TrustLog:
    """The suggestions and rules that were heard, and what was said to them."""

    def __init__(self) -> None:
        self._suggestions: OrderedDict[str, Envelope] = OrderedDict()
        self._rules: OrderedDict[str, Envelope] = OrderedDict()
        self._answered: OrderedDict[str, str] = OrderedDict()
        self.stopped_by: str | None = None

    def hear(self, envelope: Envelope) -> None:
        match envelope.kind:
            case "trust/suggestion":
                _keep(self._suggestions, envelope.id, envelope)
            case "trust/rule":
                # A rule that is said again is the same rule in a new state.
                _keep(self._rules, _rule_name(envelope), envelope)
            case "trust/accept" | "trust/dismiss":
                for id in (*envelope.correlation_id, str(envelope.payload.get("suggestion"))):
                    word = "accepted" if envelope.kind == ACCEPT else "dismissed"
                    _keep(self._answered, id, f"{word} by {envelope.sender}")
            case "trust/stop":
                self.stopped_by = envelope.sender

    def suggestions(self) -> list[Envelope]:
        return list(self._suggestions.values())

    def open_suggestions(self) -> list[Envelope]:
        return [each for each in self._suggestions.values() if self.answer_to(each) is None]

    def answer_to(self, suggestion: Envelope) -> str | None:
        """What somebody said to it, by its envelope or by its own name."""
        return self._answered.get(suggestion.id) or self._answered.get(_suggestion_name(suggestion))

    def rules(self) -> list[Envelope]:
        return list(self._rules.values())

    def find(self, named: str) -> Envelope:
        """A suggestion by its id or the beginning of it; raises UsageError."""
        like = [
            each
            for id, each in self._suggestions.items()
            if id.startswith(named) or _suggestion_name(each) == named
        ]
        if len(like) == 1:
            return like[0]
        raise UsageError(f"no suggestion {named} was heard: /suggestions lists them")

    # What can be typed

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                name="suggestions",
                help="rules and grants that were suggested; accept or dismiss one",
                about="Lists what was suggested in this space, or answers a suggestion. Nothing becomes "
                "active by itself.",
                arguments=_suggestion_arguments,
                run=self._suggestions_run,
                only_joined=True,
            ),
            Operation(
                name="rules",
                help="the rules that decide by themselves; stop them all",
                arguments=_rules_arguments,
                run=self._rules_run,
                only_joined=True,
            ),
        )

    async def _suggestions_run(self, seat: Seat, chosen: argparse.Namespace) -> Answer:
        if chosen.action is None:
            shown = self.suggestions()
            lines = [line for each in shown for line in self._shown(each)]
            return Answer([each.payload for each in shown], lines or ["nothing was suggested since you came"])
        if chosen.suggestion is None:
            raise UsageError(f"say which one to {chosen.action}: /suggestions lists them")
        found = self.find(chosen.suggestion)
        kind = ACCEPT if chosen.action == "accept" else DISMISS
        payload: dict[str, Json] = {"suggestion": _suggestion_name(found)}
        payload |= {} if chosen.reason is None else {"reason": chosen.reason}
        sent = await seat.space.send(kind, payload, to=found.sender, about=found.id, confirm=True)
        return Answer({"id": sent.id}, [f"{chosen.action}ed suggestion {short(found.id)}"])

    async def _rules_run(self, seat: Seat, chosen: argparse.Namespace) -> Answer:
        if chosen.action is not None:
            payload: dict[str, Json] = {} if chosen.reason is None else {"reason": chosen.reason}
            if chosen.action == "stop":
                payload |= {} if chosen.rule is None else {"rule": chosen.rule}
                sent = await seat.space.send(STOP, payload, confirm=True)
                return Answer({"id": sent.id}, [f"told {chosen.rule or 'all rules'} to stop deciding"])
            if chosen.action == "resume":
                sent = await seat.space.send(ACCEPT, payload | {"resume": True}, confirm=True)
                return Answer({"id": sent.id}, ["rules may decide again"])
            if chosen.rule is None:
                raise UsageError("say which rule to lift: /rules lists them")
            sent = await seat.space.send(ACCEPT, payload | {"lift": chosen.rule}, confirm=True)
            return Answer({"id": sent.id}, [f"asked to lift the suspension of {chosen.rule}"])
        lines = [line for each in self.rules() for line in _in_words(each, "")]
        return Answer([each.payload for each in self.rules()], lines or ["no rule was told since you came"])

    def _shown(self, suggestion: Envelope) -> list[str]:
        return _in_words(suggestion, self.answer_to(suggestion) or "open")


def _keep(table: OrderedDict[str, Envelope] | OrderedDict[str, str], id: str, value: Envelope | str) -> None:
    table[id] = value  # type: ignore[assignment]
    table.move_to_end(id)
    while len(table) > TRUST_KEPT:
        table.popitem(last=False)


def _in_words(envelope: Envelope, state: str) -> list[str]:
    payload = envelope.payload
    words = next(
        (payload[key] for key in ("words", "summary", "text") if isinstance(payload.get(key), str)), ""
    )
    head = f"{short(envelope.id)}  {envelope.sender}{f' ({state})' if state else ''}: {words}"
    rest = {key: value for key, value in payload.items() if value != words}
    return [head, *(f"    {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in rest.items())]


def _suggestion_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("accept", "dismiss"), help="your answer to one")
    parser.add_argument("suggestion", nargs="?", metavar="ID", help="its id, or the beginning of it")
    parser.add_argument("--reason", metavar="WORDS", help="why")


def _rules_arguments(parser: argparse.ArgumentParser) -> None:
    told = "stop: decide no more; resume: all go on; lift: end the suspension of one"
    parser.add_argument("action", nargs="?", choices=("stop", "lift", "resume"), help=told)
    parser.add_argument("rule", nargs="?", metavar="RULE", help="which; stop without one stops them all")
    parser.add_argument("--reason", metavar="WORDS", help="why")


def _suggestion_name(envelope: Envelope) -> str:
    name = envelope.payload.get("suggestion")
    return name if isinstance(name, str) else envelope.id


def _rule_name(envelope: Envelope) -> str:
    rule: Json = envelope.payload.get("rule")
    name = rule.get("name") if isinstance(rule, dict) else rule
    return name if isinstance(name, str) else envelope.id
