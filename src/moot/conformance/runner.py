"""Runs vectors through a driver: the pure space here, a socket elsewhere; the same words for both.

A foreign gateway is judged by what MEW demands, and not by what it leaves open (`unspecified`): the order of
what one step causes, whether members hear themselves, the codes and texts that the document does not name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from moot.conformance.blame import Finding, Subject, rows_broken
from moot.conformance.expectation import Memory, difference, filled
from moot.conformance.unspecified import (
    ANY_REFUSAL,
    asked_of_others,
    is_open,
    need_not_be_told,
    why_not_demanded,
    why_owed,
)
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
        received = driver.join(name, options)
        if foreign is not None:
            _check_joined(name, options, received.get(name, []))
    for number, step in enumerate(vector.steps, 1):
        sent: Json = None if step.send is None else filled(step.send, memory)
        received = _play(step, sent, driver, memory)
        if foreign is not None and step.join is not None and "'refused'" not in str(step.hear):
            name, options = one_joining(step.join)
            if "runtime_id" in options:
                _check_joined(name, options, received.get(name, []))
        if step.unchecked:
            continue
        learned = dict(memory)
        found = _judge(vector, step, sent, received, learned, foreign=foreign is not None)
        for _ in range(_LATE_LOOKS if found and foreign else 0):
            # MEW does not say how soon.
            for name, messages in foreign().items() if foreign else ():
                received.setdefault(name, []).extend(messages)
            learned = dict(memory)
            found = _judge(vector, step, sent, received, learned, foreign=True)
            if not found:
                break
        if found:
            text = f"{vector.name}: step {number}: {found.text}"
            if foreign and (why := found.open or _ruling(vector, step)):
                raise NotJudged(f"{why}: {text}")
            raise Failed(text, rows_broken(vector, step, found))
        memory = learned


def _ruling(vector: Vector, step: VectorStep) -> str | None:
    if "'kind': 'moot/" in str((step.send, step.hear)):
        return "MEW has no kinds moot/…, which are an extension of ours"
    ruling = step.ruling or vector.ruling
    return f"MEW is silent and {ruling} is a ruling of ours" if ruling else None


def _check_joined(name: str, options: Mapping[str, Json], received: list[Json]) -> None:
    """Raises NotJudged when a story cannot begin, because somebody of it is not there under that name."""
    refused = next((message for message in received if "refused" in message), None)
    if refused is not None:
        raise NotJudged(f"{name} could not join: {refused['refused']}, {refused.get('message')}"[:300])
    wished = options.get("runtime_id")
    payloads = [message.get("payload") for message in received if message.get("kind") == "system/welcome"]
    ids = [(payload.get("you") or {}).get("id") for payload in payloads if isinstance(payload, dict)]
    if wished is not None and wished not in ids:
        raise NotJudged(f"needs a gateway that takes the id that {name} asks for (D-20)")


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
    vector: Vector, step: VectorStep, sent: Json, received: ReceivedMessages, memory: Memory, *, foreign: bool
) -> Finding | None:
    by = step.by or ""
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
            expected.setdefault(name, []).append({"from": by.partition("/")[0]} | same)
    if step.refused is not None:
        error: dict[str, Json] = {
            "kind": {"$not": "$absent"},
            "payload": {"error": step.refused, "message": "$text", **(step.payload or {})},
        }
        if sent and "id" in sent and step.refused not in ("invalid_envelope", "protocol_mismatch"):
            error["correlation_id"] = {"$not": "$absent"}
        expected.setdefault(by, []).append(error)
    named = dict(step.hear or {})
    others = named.pop("others", [])
    for name, messages in expected.items():
        messages += named.pop(name, others)
    if named:
        absent = f"hear names {', '.join(named)}, who {'are' if len(named) > 1 else 'is'} not there"
        return Finding(absent, open="the story cannot go on" if foreign else None)
    if foreign:
        return _judge_foreign(vector, step, sent or _read_raw(step), expected, received, memory)
    for name, messages in expected.items():
        got = received.get(name, [])
        if len(got) != len(messages):
            return Finding(
                f"{name} should receive {len(messages)}, received {len(got)}: {[_label(m) for m in got]}"
            )
        for index, (single, message) in enumerate(zip(messages, got, strict=True)):
            found = difference(single, message, memory)
            if found:
                return Finding(f"{name} hears #{index + 1} {_label(message)}: {found}")
    return None


# Gateways that others wrote


def _judge_foreign(
    vector: Vector,
    step: VectorStep,
    sent: Json,
    expected: Mapping[str, list[Json]],
    received: ReceivedMessages,
    memory: Memory,
) -> Finding | None:
    by, kind = step.by or "", str((sent or {}).get("kind", ""))
    told = _told_to_refuse(step)
    may = why_not_demanded(vector, step, told, kind) if told else None
    if told and (hearing := _relayed_to(sent, by, received)):
        return Finding(f"is not refused ({told}): {', '.join(hearing)} hears it", open=may)
    if not told and step.join is None and _is_refused(received.get(by, [])):
        may = why_owed(vector, step, sent)
    joiner = one_joining(step.join)[0] if step.join is not None else None
    for name, messages in expected.items():
        wanted = [asked_of_others(each, vector.rows, kind) for each in messages]
        missing, left = _unmatched(wanted, received.get(name, []), memory)
        left = [each for each in left if not need_not_be_told(each, sent)]
        own = name.partition("/")[0] == by.partition("/")[0]
        missing = [each for each in missing if not is_open(each, sent, own=own, joiner=name == joiner)]
        # What becomes of an envelope on its way is seen where others hear it; an echo may be late, too.
        left = [each for each in left if not _is_echo(each, name, vector)]
        if "MEW-3.6.5-9" not in vector.rows:
            missing = [each for each in missing if not need_not_be_told(each, sent)]
        if (
            told
            and name == by
            and (errors := [each for each in missing if each.get("kind") == "system/error"])
        ):
            if not left:
                text = f"{name} is not told that it was refused ({told})"
                return Finding(text, "unanswered", told, open=may)
            if ANY_REFUSAL in errors and any("closed" in each for each in left):
                # To be thrown out is a refusal, too; with an error or without.
                missing.remove(ANY_REFUSAL)
        if told and name == by:
            left = [each for each in left if "closed" not in each]
        if left and not missing:
            text = f"{name} hears besides: {[_label(m) for m in left]}"
            return Finding(text, *_subject(left[0], sent), open=may)
        if missing and not left:
            text = f"{name} does not hear {str(missing[0])[:300]}"
            missed = Finding(text, *_subject(missing[0], sent), open=may)
            if _is_relay(missing[0], sent) and not _is_refused(received.get(by, [])):
                missed = missed._replace(subject="relay")
            return missed
        for single, message in zip(missing, left, strict=False):
            found = difference(single, message, memory)
            details = f"{name} hears {_label(message)}: {found}"
            return Finding(details, *_subject(single, sent), open=may)
    return None


def _is_echo(message: Json, name: str, vector: Vector) -> bool:
    own = [step.send for step in vector.steps if step.by == name and step.send]
    ids = {str(sent["id"]) for sent in own if "id" in sent}
    return message.get("id") in ids and message.get("kind") != "system/error"


def _told_to_refuse(step: VectorStep) -> str | None:
    """The code with which ours refuses what this step sends; None if it does not."""
    if step.refused is not None:
        return step.refused
    for message in (step.hear or {}).get(step.by or "", []):
        payload = message.get("payload") if isinstance(message, dict) else None
        if isinstance(payload, dict) and message.get("kind") == "system/error" and not step.relayed:
            return str(payload.get("error"))
    return None


def _read_raw(step: VectorStep) -> Json:
    try:
        found = json.loads(step.raw or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _relayed_to(sent: Json, by: str, received: ReceivedMessages) -> list[str]:
    """Who hears an envelope that was to be refused."""
    if not sent:
        # No envelope at all: whatever others hear of it is too much.
        return [
            name
            for name, got in received.items()
            if name != by and any({"kind", "frame"} & each.keys() for each in got)
        ]
    same = {key: sent[key] for key in ("id", "kind") if key in sent}
    if not same:
        return []
    return [name for name, got in received.items() if any(difference(same, each, {}) is None for each in got)]


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


def _unmatched(expected: list[Json], received: list[Json], memory: Memory) -> tuple[list[Json], list[Json]]:
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
            missing.append(wanted)
    return missing, left


def _label(message: Json) -> str:
    if not isinstance(message, dict):
        return repr(message)[:80]
    payload = message.get("payload")
    what = payload.get("error") or payload.get("event") or "" if isinstance(payload, dict) else ""
    return f"{message.get('kind') or message} {what}".strip()[:160]
