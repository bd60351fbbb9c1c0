"""One effect, once: a call whose key was carried out before, or may have been, asks a person again.

`effects:` of a space names calls and a key over their arguments, as in `{invoice}/{payee}`. It binds every
way to a call, as a budget does.

    no call with this key                          it is made, and its key is remembered
    sent, and its host has not said that it failed  a person has to confirm it, and names that call
    the key cannot be told, or no room is left     a person has to approve it

The person confirms by naming the request of the earlier call in the approval, beside the proposal: whoever
has not seen it cannot have confirmed it, not even by a vote or a click at the same moment. A host's answer
that the call failed frees the key, no answer does not; `moot/settle` says what came of it. Keys are compared
by meaning (`same_value`) and remembered for so many days after the call, unless nobody knows what came of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from moot.errors import ApprovalRequired
from moot.protocol.argument_template import ArgumentPath, NotThere, fill, places_in, render, values_at
from moot.protocol.envelope import rfc3339
from moot.protocol.hidden_text import show_hidden
from moot.protocol.operation import Json, Payload
from moot.protocol.same_value import NotComparable, same_form
from moot.space.config import Name, SpaceEffect
from moot.space.proposals.budgets import exact_json
from moot.space.proposals.call_rules import CallRules
from moot.space.proposals.quorum import binds_call

# Keys that one space remembers: a day of a large company's payments, in about 4 MB.
MAX_KEYS: Final = 10_000
# Of one value, and of the reconciling call, which is kept with a key while its outcome is open.
_SHOWN_CHARS: Final = 60
_RECONCILE_BYTES: Final = 4_096
_DAY: Final = 86_400.0

EffectState = Literal["open", "done", "failed"]
_Key = tuple[str, str]


class EffectUse(NamedTuple):
    """What one call would bring about; `fault` in place of a key that cannot be told."""

    effect: SpaceEffect
    digest: str
    shown: str
    fault: str = ""
    reconcile: dict[str, Json] | None = None

    @property
    def name(self) -> str:
        return self.effect.name


class KeyedCall(Protocol):
    """A call that is about to be made; `may_confirm`: by a person, who may say that it is done again."""

    @property
    def uses(self) -> tuple[EffectUse, ...]: ...
    @property
    def may_confirm(self) -> bool: ...


class EffectRecord(msgspec.Struct):
    """A key, and the last call that had it."""

    name: str
    digest: str
    shown: str
    # The request, whose call it was, who approved it (nobody: a direct call), and when.
    request: str
    by: Name
    approved_by: Name | None
    at: float
    until: float
    # Who was asked and has not answered.
    waiting: tuple[Name, ...]
    state: EffectState = "open"
    # The call that may tell what came of it, while nobody knows.
    reconcile: dict[str, Json] | None = None
    # The call before, which still holds if this one failed.
    earlier: EffectRecord | None = None

    def holds(self, now: float) -> bool:
        """Whether another call with this key asks."""
        return self.state == "open" or (self.state == "done" and now < self.until)


class EffectTable:
    """The keys of one space that were carried out, or may have been."""

    def __init__(self) -> None:
        self._records: dict[_Key, EffectRecord] = {}
        # Those that an answer to a request, or a person, may still decide.
        self._by_request: dict[str, list[EffectRecord]] = {}

    def __len__(self) -> int:
        return len(self._records)

    def find(self, use: EffectUse, now: float) -> EffectRecord | None:
        """The call that had this key, if it holds."""
        record = self._records.get((use.effect.name, use.digest))
        return record if record is not None and record.holds(now) else None

    def about(self, request: str) -> Sequence[EffectRecord]:
        return self._by_request.get(request, ())

    def is_full(self, now: float) -> bool:
        return len(self._records) >= MAX_KEYS and all(each.holds(now) for each in self._records.values())

    def record(
        self,
        uses: Sequence[EffectUse],
        request: str,
        by: Name,
        approved_by: Name | None,
        hosts: tuple[Name, ...],
        now: float,
    ) -> None:
        """This request was let through."""
        for use in uses:
            if use.fault:
                continue
            key = use.effect.name, use.digest
            earlier = self.find(use, now)
            if key in self._records:
                self._forget(key)
            self._make_room(now)
            until = now + use.effect.days * _DAY
            record = EffectRecord(
                *(*key, use.shown, request, by, approved_by, now, until, hosts),
                reconcile=use.reconcile,
                earlier=None if earlier is None else msgspec.structs.replace(earlier, earlier=None),
            )
            self._records[key] = record
            self._by_request.setdefault(request, []).append(record)

    def note_answer(self, request: str, host: Name, *, failed: bool) -> Sequence[EffectRecord]:
        """A host has answered: what it said counts more than what a person said in its place."""
        found = [each for each in self.about(request) if host in each.waiting]
        for each in found:
            each.waiting = tuple(name for name in each.waiting if name != host)
            self._set(each, "failed" if failed else "done")
        return found

    def settle(self, request: str, outcome: Literal["done", "failed"]) -> Sequence[EffectRecord]:
        """A person says what came of it."""
        found = [each for each in self.about(request) if each.state == "open"]
        for each in found:
            self._set(each, outcome)
        return found

    def is_open(self, request: str) -> bool:
        """Whether nobody has said what came of it."""
        return any(each.state == "open" for each in self.about(request))

    def move(self, before: str, request: str) -> None:
        """The same call goes on under another request."""
        for each in self._by_request.pop(before, []):
            each.request = request
            self._by_request.setdefault(request, []).append(each)

    def _set(self, record: EffectRecord, state: EffectState) -> None:
        record.state, record.reconcile = state, None
        key = record.name, record.digest
        if state == "failed" and record.earlier is not None and self._records.get(key) is record:
            # What was done before is done, whatever came of the second call.
            self._forget(key)
            self._records[key] = record.earlier
            self._by_request.setdefault(record.earlier.request, []).append(record.earlier)

    def _make_room(self, now: float) -> None:
        if len(self._records) < MAX_KEYS:
            return
        over = [key for key, each in self._records.items() if not each.holds(now)]
        for key in over or [next(iter(self._records))]:
            self._forget(key)

    def _forget(self, key: _Key) -> None:
        record = self._records.pop(key)
        left = [each for each in self._by_request.pop(record.request, []) if each is not record]
        if left:
            self._by_request[record.request] = left

    def save(self) -> list[Json]:
        return [msgspec.to_builtins(each) for each in self._records.values()]

    @classmethod
    def load(cls, saved: Sequence[Any]) -> EffectTable:
        table = cls()
        for each in saved:
            record = msgspec.convert(each, EffectRecord)
            table._records[record.name, record.digest] = record
            table._by_request.setdefault(record.request, []).append(record)
        return table


# What a call brings about


def find_uses(
    effects: CallRules[SpaceEffect], payload: Payload, raw: bytes, to: Sequence[str]
) -> tuple[EffectUse, ...]:
    """What a call of these members brings about, of all that has a key."""
    found: list[EffectUse] = []
    arguments: Json = None
    for effect in effects.about(payload):
        if not effect.key or not binds_call(effect.calls, payload, to):
            continue
        if arguments is None:
            params = exact_json.decode(raw.decode())["payload"].get("params")
            arguments = (params.get("arguments") if isinstance(params, dict) else None) or {}
        hosts = [host for host in dict.fromkeys(to) if binds_call(effect.calls, payload, (host,))]
        found.append(_find_use(effect, arguments, payload, hosts))
    return tuple(found)


def _find_use(effect: SpaceEffect, arguments: Json, payload: Payload, hosts: Sequence[str]) -> EffectUse:
    form: list[Json] = []
    shown: dict[ArgumentPath, str] = {}
    for path in places_in(effect.key):
        try:
            values = list(values_at(arguments, path))
            form.append([same_form(each) for each in values])
        except NotThere as fault:
            return EffectUse(effect, "", "", str(fault))
        except NotComparable as fault:
            return EffectUse(effect, "", "", f"{'.'.join(path)} {fault}")
        shown[path] = ", ".join(map(_show, values))
    if len(hosts) > 1:
        return EffectUse(effect, "", "", f"it goes to {len(hosts)} hosts at once")
    text = json.dumps(form, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    digest = sha256(text.encode()).hexdigest()[:32]
    return EffectUse(
        effect, digest, render(effect.key, shown), reconcile=_reconciling(effect, payload, hosts)
    )


def _show(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str).strip('"')
    return show_hidden(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…")


def _reconciling(effect: SpaceEffect, payload: Payload, hosts: Sequence[str]) -> dict[str, Json] | None:
    """The call that tells what came of this one, and how; None if there is none, or it would be too large."""
    if effect.reconcile is None:
        return None
    call, params = effect.reconcile.call, payload.get("params")
    try:
        arguments = fill(dict(call.arguments), params.get("arguments") if isinstance(params, dict) else None)
    except NotThere:
        return None
    made: dict[str, Json] = {
        "to": call.to or hosts[0],
        "tool": call.tool,
        "arguments": arguments,
        "done": dict(effect.reconcile.done),
        "not_done": None if effect.reconcile.not_done is None else dict(effect.reconcile.not_done),
        "after_seconds": effect.reconcile.after_seconds,
    }
    return made if len(json.dumps(made)) <= _RECONCILE_BYTES else None


# What follows from it


def check_uses(table: EffectTable, act: KeyedCall, named: Collection[str], now: float) -> None:
    """Raises ApprovalRequired unless each is new, or a person approves it who names the earlier call."""
    for use in act.uses:
        record = table.find(use, now)
        note = describe_use_of(table, use, now)
        if note["verdict"] == "free":
            continue
        if not act.may_confirm:
            raise ApprovalRequired(f"propose it: {note['text']}", **note)
        if record is not None and record.request not in named:
            hint = f" (whoever approves it names {record.request})"
            raise ApprovalRequired(f"{note['text']}{hint}", **note)


def describe_use_of(table: EffectTable, use: EffectUse, now: float) -> dict[str, Json]:
    """What a call would bring about, with the sentence for people; `verdict` is free or asks."""
    name, record = use.effect.name, table.find(use, now)
    note: dict[str, Json] = {"effect": name, "key": use.shown, "verdict": "asks"}
    if use.fault:
        return {**note, "text": f"{name}: {use.fault}, so nobody can tell whether this was done before"}
    if record is None and table.is_full(now):
        return {**note, "text": f"{name}: {MAX_KEYS} effects are remembered and no more, so a person decides"}
    if record is None:
        days = f"{use.effect.days:g} day{'s' * (use.effect.days != 1)}"
        text = f"{name} {use.shown}: not done before, as far as the last {days} are known"
        return {**note, "verdict": "free", "text": text}
    return {**note, "text": f"{describe_record(record)}: do it again?", "earlier": _earlier(record)}


def describe_record(record: EffectRecord) -> str:
    """What came of an earlier call, for people."""
    approved = f", approved by {record.approved_by}" if record.approved_by else ""
    came = {"done": "was done", "failed": "failed"}.get(record.state, "was sent")
    left = ", and nobody knows what came of it" if record.state == "open" else ""
    when = rfc3339(record.at)[:16].replace("T", " ")
    return f"{record.name} {record.shown} {came} for {record.by} on {when} UTC{approved}{left}"


def describe_open(record: EffectRecord) -> dict[str, Json]:
    """A call of which nobody knows what came of it, and how that may be found out."""
    text = describe_record(record)
    note: dict[str, Json] = {"effect": record.name, "key": record.shown, "verdict": "free", "text": text}
    return {**note, "earlier": _earlier(record)}


def _earlier(record: EffectRecord) -> dict[str, Json]:
    told: dict[str, Json] = {
        "request_id": record.request,
        "by": record.by,
        "approved_by": record.approved_by,
        "at": rfc3339(record.at),
        "until": rfc3339(record.until),
        "outcome": "unknown" if record.state == "open" else record.state,
        "reconcile": record.reconcile,
    }
    return {name: value for name, value in told.items() if value is not None}


def describe_classes(effects: CallRules[SpaceEffect], payload: Payload, to: Sequence[str]) -> Iterator[Json]:
    """Whether what a call does can be taken back, as far as the operator said."""
    for effect in effects.about(payload):
        if effect.undo is not None and binds_call(effect.calls, payload, to):
            by = "" if effect.compensate is None else f" by {effect.compensate.tool}"
            text = {
                "reversible": "can be undone",
                "compensable": f"can be made good{by}",
                "final": "cannot be undone",
            }[effect.undo]
            yield {
                "effect": effect.name,
                "undo": effect.undo,
                "verdict": "free",
                "text": f"{effect.name}: {effect.undo}, it {text}",
            }


def describe_effect(effect: SpaceEffect) -> str:
    """What the operator said of it, in words."""
    parts = []
    if effect.key:
        parts.append(f"once for each {effect.key}, remembered for {effect.days:g} days")
    if effect.reconcile is not None:
        parts.append(f"{effect.reconcile.call.tool} finds out what nobody knows")
    if effect.undo is not None:
        by = "" if effect.compensate is None else f" by {effect.compensate.tool}"
        parts.append(f"{effect.undo}{by}")
    return "; ".join(parts)


def list_effects(effects: Sequence[SpaceEffect]) -> list[Json]:
    """What the operator said of effects, for whoever makes the calls that belong to them."""
    return [
        {
            "effect": each.name,
            "calls": each.calls.original,
            "key": each.key,
            "days": each.days,
            "undo": each.undo,
            "compensate": None if each.compensate is None else msgspec.to_builtins(each.compensate),
        }
        for each in effects
    ]
