"""Runs vectors through a driver: the pure space here, a socket elsewhere; the same words for both.

A foreign gateway is judged by what MEW demands, and not by what it leaves open: the order of what one step
causes, whether a joiner hears of its own presence, and whether an error has a text beside its code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from moot.conformance.blame import Finding, Subject, rows_broken
from moot.conformance.expectation import Memory, difference, filled
from moot.conformance.vectors import Vector, VectorStep, one_joining
from moot.protocol.operation import Json

ReceivedMessages = dict[str, list[Json]]
# How often a foreign gateway is asked again after a difference.
_LATE_LOOKS: Final = 3


class Driver(Protocol):
    """Something with a space in it. Every method returns what each member received since the last call."""

    def join(self, name: str, options: Mapping[str, Json]) -> ReceivedMessages: ...

    def leave(self, name: str) -> ReceivedMessages: ...

    def send(self, name: str, envelope: Mapping[str, Json]) -> ReceivedMessages: ...

    def raw(self, name: str, text: str) -> ReceivedMessages: ...

    def frame(self, name: str, text: str) -> ReceivedMessages: ...

    def wait(self, seconds: float) -> ReceivedMessages: ...

    def journal(self, able: bool) -> ReceivedMessages: ...


class Failed(AssertionError):
    """A vector that came out differently; the text says at which step and where, `rows` what that breaks."""

    def __init__(self, text: str, rows: Sequence[str]) -> None:
        super().__init__(text)
        self.rows = tuple(rows)


class NotJudged(Exception):
    """The story cannot be played to its end on this gateway, which says nothing about the rows of it."""


def run_vector(
    vector: Vector, driver: Driver, *, foreign: Callable[[], ReceivedMessages] | None = None
) -> None:
    """Play one vector; raises Failed at the first difference.

    `foreign`: judge by what MEW demands alone, and call this for what arrives later than it might have.
    """
    memory: Memory = {}
    for name, options in vector.joining():
        driver.join(name, options)
    for number, step in enumerate(vector.steps, 1):
        sent: Json = None if step.send is None else filled(step.send, memory)
        received = _play(step, sent, driver, memory)
        if step.unchecked:
            continue
        learned = dict(memory)
        found = _judge(step, sent, received, learned, foreign=foreign is not None)
        for _ in range(_LATE_LOOKS if found and foreign else 0):
            # MEW does not say how soon.
            for name, messages in foreign().items() if foreign else ():
                received.setdefault(name, []).extend(messages)
            learned = dict(memory)
            found = _judge(step, sent, received, learned, foreign=True)
            if not found:
                break
        if found:
            raise Failed(f"{vector.name}: step {number}: {found.text}", rows_broken(vector, step, found))
        memory = learned


def _play(step: VectorStep, sent: Json, driver: Driver, memory: Memory) -> ReceivedMessages:
    by = step.by or ""
    if step.send is not None:
        return driver.send(by, sent)
    if step.raw is not None:
        return driver.raw(by, str(filled(step.raw, memory)))
    if step.frame is not None:
        return driver.frame(by, str(filled(step.frame, memory)))
    if step.join is not None:
        return driver.join(*one_joining(step.join))
    if step.leave is not None:
        return driver.leave(step.leave)
    if step.wait is not None:
        return driver.wait(step.wait)
    return driver.journal(bool(step.journal))


def _judge(
    step: VectorStep, sent: Json, received: ReceivedMessages, memory: Memory, *, foreign: bool
) -> Finding | None:
    expected: dict[str, list[Json]] = {name: [] for name in received}
    if step.relayed:
        hearing = list(received) if step.relayed is True else step.relayed
        same = (
            {"id": sent["id"]}
            if sent and "id" in sent
            else {"payload": (sent or {}).get("payload", "$absent")}
        )
        for name in hearing:
            # `alice/2` is a second session of alice.
            expected.setdefault(name, []).append({"from": (step.by or "").partition("/")[0]} | same)
    if step.refused is not None:
        text = {} if foreign else {"message": "$text"}
        error: dict[str, Json] = {
            "kind": {"$not": "$absent"},
            "payload": {"error": step.refused, **text, **(step.payload or {})},
        }
        if sent and "id" in sent and step.refused not in ("invalid_envelope", "protocol_mismatch"):
            error["correlation_id"] = {"$not": "$absent"}
        expected.setdefault(step.by or "", []).append(error)
    named = dict(step.hear or {})
    others = named.pop("others", [])
    for name, messages in expected.items():
        messages += named.pop(name, others)
    if named:
        return Finding(f"hear names {', '.join(named)}, who {'are' if len(named) > 1 else 'is'} not there")
    if foreign and step.refused is not None and (relayed := _relayed_to(sent, received)):
        return Finding(f"is not refused with {step.refused}: {', '.join(relayed)} hears it")
    joiner = one_joining(step.join)[0] if foreign and step.join is not None else None
    for name, messages in expected.items():
        got = received.get(name, [])
        if foreign:
            wanted = [_without_text(each) for each in messages]
            messages, got = _unmatched(wanted, got, memory, own_presence=name == joiner)
            if got and not messages:
                return Finding(f"{name} hears besides: {[_label(m) for m in got]}", *_subject(got[0], sent))
            if messages and not got:
                missed = Finding(
                    f"{name} does not hear {str(messages[0])[:300]}", *_subject(messages[0], sent)
                )
                if _is_relay(messages[0], sent) and not _is_refused(received.get(step.by or "", [])):
                    missed = missed._replace(subject="relay")
                return missed
        if len(got) != len(messages):
            return Finding(
                f"{name} should receive {len(messages)}, received {len(got)}: {[_label(m) for m in got]}"
            )
        for index, (single, message) in enumerate(zip(messages, got, strict=True)):
            found = difference(single, message, memory)
            if found:
                details = f"{name} hears #{index + 1} {_label(message)}: {found}"
                return Finding(details, *_subject(single, sent))
    return None


def _relayed_to(sent: Json, received: ReceivedMessages) -> list[str]:
    """Who hears an envelope that was to be refused, as it was sent."""
    if not sent or "id" not in sent:
        return []
    same = {key: sent[key] for key in ("id", "kind") if key in sent}
    return [name for name, got in received.items() if any(difference(same, each, {}) is None for each in got)]


def _without_text(message: Json) -> Json:
    """What is expected of a foreign gateway: an error need not have a text beside its code."""
    payload = message.get("payload") if isinstance(message, dict) else None
    if not isinstance(payload, dict) or payload.get("message") != "$text":
        return message
    return message | {"payload": {key: value for key, value in payload.items() if key != "message"}}


def _is_relay(message: Json, sent: Json) -> bool:
    return bool(sent) and "id" in sent and isinstance(message, dict) and message.get("id") == sent["id"]


def _is_refused(received: list[Json]) -> bool:
    return any(message.get("kind") == "system/error" for message in received)


def _subject(message: Json, sent: Json) -> tuple[Subject, str | None]:
    """What a message that is missing, too much or different is about."""
    kind = message.get("kind") if isinstance(message, dict) else None
    if not isinstance(kind, str) or kind == "system/error" or _is_relay(message, sent):
        return "step", None
    return ("step", None) if kind == (sent or {}).get("kind") else ("notice", kind)


def _unmatched(
    expected: list[Json], received: list[Json], memory: Memory, *, own_presence: bool
) -> tuple[list[Json], list[Json]]:
    """What is left of both when everything that fits has been taken away, in whatever order it came."""
    missing, left = [], list(received)
    for wanted in expected:
        for message in left:
            trial = dict(memory)
            if difference(wanted, message, trial) is None:
                memory.update(trial)
                left.remove(message)
                break
        else:
            if not (own_presence and wanted.get("kind") == "system/presence"):
                missing.append(wanted)
    return missing, [message for message in left if not _tells_of_invitation(message)]


def _tells_of_invitation(message: Json) -> bool:
    """MEW 3.7: presence may tell of an invitation as well, and need not."""
    payload = message.get("payload") if message.get("kind") == "system/presence" else None
    return isinstance(payload, dict) and payload.get("event") == "invited"


def _label(message: Json) -> str:
    if not isinstance(message, dict):
        return repr(message)[:80]
    payload = message.get("payload")
    what = payload.get("error") or payload.get("event") or "" if isinstance(payload, dict) else ""
    return f"{message.get('kind') or message} {what}".strip()[:160]
