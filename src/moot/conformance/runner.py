"""Runs vectors through a driver: the pure space here, a socket elsewhere; the same words for both."""

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


def run_vector(vector: Vector, driver: Driver) -> None:
    """Play one vector; raises Failed at the first difference."""
    memory: Memory = {}
    for name, options in vector.joining():
        driver.join(name, options)
    for number, step in enumerate(vector.steps, 1):
        sent: Json = None if step.send is None else filled(step.send, memory)
        heard = _play(step, sent, driver, memory)
        if not step.unchecked:
            found = _judge(step, sent, heard, memory)
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


def _judge(step: VectorStep, sent: Json, heard: Heard, memory: Memory) -> str | None:
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
        error: dict[str, Json] = {
            "kind": {"$not": "$absent"},
            "payload": {"error": step.refused, "message": "$text"} | (step.payload or {}),
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
    for name, messages in expected.items():
        got = heard.get(name, [])
        if len(got) != len(messages):
            return f"{name} should hear {len(messages)}, heard {len(got)}: {[_label(m) for m in got]}"
        for index, (wanted, message) in enumerate(zip(messages, got, strict=True)):
            found = difference(wanted, message, memory)
            if found:
                return f"{name} hears #{index + 1} {_label(message)}: {found}"
    return None


def _label(message: Json) -> str:
    if not isinstance(message, dict):
        return repr(message)[:80]
    error = (message.get("payload") or {}).get("error", "")
    return f"{message.get('kind') or message} {error}".strip()[:160]
