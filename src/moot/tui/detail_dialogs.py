"""Dialogs that show one thing in full: a message, a member, reasoning, a stream, a rule."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from moot.errors import WARNING_CODES, UsageError
from moot.operations.content_operation import CONTENT, find_hash, reference_text
from moot.operations.operation import ClientContext, OperationResult, short_id
from moot.operations.text.capability_text import in_words
from moot.operations.trust_log import TrustLog
from moot.participant import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.large_content import listed_parts
from moot.tui.dialog import DetailDialog
from moot.tui.panes import StreamPane, reasoning_lines
from moot.tui.row_layout import Line, Part, line
from moot.tui.rules_pane import rule_details
from moot.tui.timeline import Timeline

# What to do, by the error code on the wire (MEW 3.8.2, D-42).
_ADVICE: Final[Mapping[str, str]] = {
    "invalid_envelope": "the message is malformed: see the details above, correct it and send it again",
    "invalid_json": "the message is not valid JSON, or has duplicate keys: correct it and send it again",
    "protocol_mismatch": "its protocol field does not match this connection: correct it",
    "rate_limited": "too many messages in a short time: wait a moment, then retry",
    "auth_violation": "it was sent in somebody else's name: send it under your own",
    "participant_paused": "its sender is paused: somebody else can end that with /resume NAME",
    "participant_shutdown": "its sender was shut down: it has to join again first",
    "duplicate_id": "that id is already used: send it with a new id",
    "capability_violation": "its sender has no permission for it: /capabilities lists permissions, "
    "/propose proposes the call instead, and a member who holds the permission can /grant it",
    "kind_payload_mismatch": "its kind and its payload do not match: correct one of them",
    "unauthorized": "it belongs to somebody else: only its owner or the gateway can do that",
    "proposal_settled": "the proposal was already approved or withdrawn, or it has expired",
    "proposal_mismatch": "it differs from the proposal: approve the proposal unchanged, or make a new one",
    "budget_exceeded": "a budget of this space is used up: /budgets shows when it is free again",
    "approval_required": "this call needs approvals of others: /propose proposes it, /approve adds yours",
    "invalid_request": "a field of the payload is invalid: the message above names it",
    "invalid_operation": "this is not possible here: the message above says why",
    "participant_not_found": "no member with that name is in the space: /members lists them",
    "target_not_found": "the stream is addressed to somebody who is not here: /members lists the members",
    "stream_not_found": "no open stream has that id: /streams lists them",
    "unauthorized_stream_write": "only the owner and permitted writers can write: see /grant-write",
    "unavailable": "the gateway cannot write its journal, so it accepts no changes: "
    "its operator has to free disk space",
    "outcome_unknown": "the gateway's disk failed meanwhile: look for the message before you send it again",
    "resource_limit": "a limit of the space is reached: the message above names it",
    "not_on_disk": "it holds now; tell the operator to free the gateway's disk before it is restarted",
}


def is_refusal(envelope: Envelope) -> bool:
    return envelope.kind == "system/error"


def explain_refusal(refusal: Envelope, about: Envelope | None) -> list[str]:
    """What was refused, why, and what can be done about it."""
    payload = refusal.payload
    code = str(payload.get("error"))
    what = ", ".join(short_id(id) for id in refusal.correlation_id) or "a frame of a stream"
    if about is not None:
        what = f"{about.kind} of {about.sender} ({short_id(about.id)})"
    done = "took effect, with a warning" if code in WARNING_CODES else "was refused"
    lines = [f"! {what} {done}: {code}", f"  {payload.get('message')}"]
    for name, value in payload.items():
        if name not in ("error", "message"):
            lines.append(f"  {name}: {json.dumps(value, ensure_ascii=False)}")
    advice = _ADVICE.get(code)
    return [*lines, f"  → {advice}"] if advice else lines


def envelope_lines(envelope: Envelope) -> list[Line]:
    """All of an envelope: its fields first, then the payload as JSON."""
    fields = (
        ("kind", envelope.kind),
        ("from", envelope.sender),
        ("to", ", ".join(envelope.to) or "all"),
        ("about", ", ".join(envelope.correlation_id)),
        ("context", envelope.context or ""),
        ("time", envelope.ts),
        ("id", envelope.id),
    )
    lines = [line((f"{name:<8}", "dim"), value) for name, value in fields if value]
    text = envelope.payload.get("text")
    if envelope.kind == "chat" and isinstance(text, str):
        return [*lines, (), *(line(each) for each in text.split("\n"))]
    result = envelope.payload.get("result")
    for part in listed_parts(result) or listed_parts(envelope.payload.get("params")):
        where = ".".join(map(str, part.at))
        lines.append(line((f"{where}: ", "strong"), (reference_text(part, is_interactive=True), "note")))
    payload = json.dumps(envelope.payload, indent=2, ensure_ascii=False)
    return [*lines, (), *(line(each) for each in payload.split("\n"))]


def member_lines(space: JoinedSpace, id: str) -> list[Line]:
    """A member and all its capabilities, in words and as JSON."""
    if id == space.me:
        name, held = space.name, space.rights.capabilities
    elif id in space.roster:
        name, held = space.roster[id].name, space.roster[id].capabilities
    else:
        return [line((f"{id} has left", "warn"))]
    mine: Part = ("  you", "me") if id == space.me else ("", "dim")
    lines = [line((id, "name"), mine), line(("name    ", "dim"), name), ()]
    for each in held:
        lines += [
            line(("may ", "dim"), in_words(each.original)),
            line(("    ", "dim"), (json.dumps(each.original, ensure_ascii=False), "dim")),
        ]
    return lines if held else [*lines, line(("no permissions visible to you", "dim"))]


class DetailDialogs:
    """Finds what a key or a name means, and opens the dialog for it."""

    def __init__(
        self,
        space: JoinedSpace,
        *,
        timeline: Timeline,
        streams: StreamPane,
        trust: TrustLog,
        show: Callable[[DetailDialog], object],
    ) -> None:
        self._space = space
        self._timeline = timeline
        self._streams = streams
        self._trust = trust
        self._show = show

    # Of a selected row: nothing happens if it is gone

    def show_envelope(self, id: str) -> None:
        envelope = self._timeline.find(id)
        if envelope is not None:
            title = f"{envelope.kind} from {envelope.sender}"
            self._show(DetailDialog(title, lambda: envelope_lines(envelope)))

    def show_member(self, id: str) -> None:
        self._show(DetailDialog(id, lambda: member_lines(self._space, id)))

    def show_reasoning(self, id: str) -> None:
        sequence = self._space.contexts.get(id)
        if sequence is not None:
            title = f"Reasoning of {sequence.owner}: {sequence.message}"
            self._show(DetailDialog(title, lambda: reasoning_lines(sequence), follows=True))

    def show_rule(self, name: str) -> None:
        found = rule_details(self._trust, name)
        if found is not None:
            title, lines = found
            self._show(DetailDialog(title, lambda: lines))

    # Of a name that was typed: raises UsageError if there is none

    def show_named_envelope(self, named: str) -> None:
        envelope = self._timeline.find(named)
        if envelope is None:
            raise UsageError(f"no recent message {named}: type more of its id")
        self.show_envelope(envelope.id)

    async def show_content(self, context: ClientContext, args: argparse.Namespace) -> OperationResult:
        """A large value: a text in a dialog, everything else in a file."""
        args.sha256 = find_hash(args.sha256, self._timeline.envelopes())
        result = await CONTENT.run(context, args)
        if args.file is not None:
            return result
        text = list(result.lines)
        self._show(DetailDialog(f"sha256 {args.sha256}", lambda: [line(each) for each in text]))
        return OperationResult(None)

    def show_stream(self, named: str) -> None:
        info = self._streams.find(named)
        if info is None:
            raise UsageError(f"unknown stream {named}: /streams lists them")
        title = f"stream {info.id} of {info.owner}"
        self._show(DetailDialog(title, lambda: self._streams.tail(info.id), follows=True))

    def explain_refusal(self, named: str | None) -> Sequence[str]:
        """Why the latest message was refused, or the one that is named."""
        found = [each for each in self._timeline.envelopes() if is_refusal(each)]
        if named is not None:
            found = [
                each for each in found if any(id.startswith(named) for id in (each.id, *each.correlation_id))
            ]
        if not found:
            return ["no message was refused" if named is None else f"no recent refusal of {named}"]
        about = next((self._timeline.find(id) for id in found[-1].correlation_id), None)
        return explain_refusal(found[-1], about)
