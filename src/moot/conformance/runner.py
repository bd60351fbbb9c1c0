"""Runs vectors through a driver: the pure space here, a socket elsewhere; the same words for both.

A foreign gateway is judged by what MEW demands, and not by what it leaves open: the order of what one step
causes, whether a joiner hears of its own presence, and whether an error has a text beside its code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from moot.conformance.expectation import Memory, difference, filled
from moot.conformance.vectors import Vector, VectorStep, one_joining
from moot.protocol.operation import Json

Heard = dict[str, list[Json]]


class Driver(Protocol):
    """Something with a space in it. Every method returns what each member has heard since the last call."""

    def join(self, name: str, options: Mapping[str, Json]) -> Heard: ...

    def leave(self, name: str) -> Heard: ...

    def send(self, name: str, envelope: Mapping[str, Json]) -> Heard: ...

    def raw(self, name: str, text: str) -> Heard: ...

    def frame(self, name: str, text: str) -> Heard: ...

    def wait(self, seconds: float) -> Heard: ...

    def journal(self, able: bool) -> Heard: ...


class Failed(AssertionError):
    """A vector that came out differently; the text says at which step and where."""


class NotJudged(Exception):
    """The story cannot be played to its end on this gateway, which says nothing about the rows of it."""


def run_vector(vector: Vector, driver: Driver, *, foreign: bool = False) -> None:
    """Play one vector; raises Failed at the first difference. `foreign`: by what MEW demands alone."""
    memory: Memory = {}
    for name, options in vector.joining():
        driver.join(name, options)
    for number, step in enumerate(vector.steps, 1):
        sent: Json = None if step.send is None else filled(step.send, memory)
        heard = _play(step, sent, driver, memory)
        if not step.unchecked:
            found = _judge(step, sent, heard, memory, foreign=foreign)
            if found:
                raise Failed(f"{vector.name}: step {number}: {found}")


def _play(step: VectorStep, sent: Json, driver: Driver, memory: Memory) -> Heard:
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


def _judge(step: VectorStep, sent: Json, heard: Heard, memory: Memory, *, foreign: bool) -> str | None:
    expected: dict[str, list[Json]] = {name: [] for name in heard}
    if step.relayed:
        hearing = list(heard) if step.relayed is True else step.relayed
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
    told = dict(step.hear or {})
    others = told.pop("others", [])
    for name, messages in expected.items():
        messages += told.pop(name, others)
    if told:
        return f"hear names {', '.join(told)}, who {'are' if len(told) > 1 else 'is'} not there"
    joiner = one_joining(step.join)[0] if foreign and step.join is not None else None
    for name, messages in expected.items():
        got = heard.get(name, [])
        if foreign:
            messages, got = _unmatched(messages, got, memory, own_presence=name == joiner)
            if got and not messages:
                return f"{name} hears besides: {[_label(m) for m in got]}"
            if messages and not got:
                return f"{name} does not hear {str(messages[0])[:300]}"
        if len(got) != len(messages):
            return f"{name} should hear {len(messages)}, heard {len(got)}: {[_label(m) for m in got]}"
        for index, (wanted, message) in enumerate(zip(messages, got, strict=True)):
            found = difference(wanted, message, memory)
            if found:
                return f"{name} hears #{index + 1} {_label(message)}: {found}"
    return None


def _unmatched(
    expected: list[Json], heard: list[Json], memory: Memory, *, own_presence: bool
) -> tuple[list[Json], list[Json]]:
    """What is left of both when everything that fits has been taken away, in whatever order it came."""
    missing, left = [], list(heard)
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
    return missing, left


def _label(message: Json) -> str:
    if not isinstance(message, dict):
        return repr(message)[:80]
    payload = message.get("payload")
    error = payload.get("error", "") if isinstance(payload, dict) else ""
    return f"{message.get('kind') or message} {error}".strip()[:160]
