"""One envelope as a person reads it: who, to whom, what. Whoever prints the text escapes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from moot.errors import WARNING_CODES
from moot.operations.operation import short_id
from moot.operations.text.capability_text import in_words
from moot.participant.conversation.contexts import reasoning_text
from moot.protocol.answer_marks import says_unknown, unknown_reason
from moot.protocol.envelope import Envelope
from moot.protocol.gateway_proposal import read_budget_notes, read_effect_notes
from moot.protocol.operation import Json
from moot.protocol.preview_report import read_preview

# Longer texts are cut in the timeline; `proposals` shows proposals in full.
_MAX_CHARS: Final = 300
_HIDDEN_KINDS: Final = frozenset(
    {
        "system/welcome",
        "moot/list-proposals",
        "moot/proposals",
        "moot/roster",
        "moot/roster-page",
        "moot/list-owners",
        "moot/owners",
    }
)
# The wire's words for changes of a rule that read better otherwise.
_RULE_STATES: Final = {"lifted": "active again", "resumed": "active again"}


@dataclass(frozen=True, slots=True)
class EnvelopeView:
    """When, who to whom, and what; presence names its subject in the text."""

    when: str
    sender: str
    to: str
    text: str

    @property
    def head(self) -> str:
        return f"{self.when} {self.sender}{self.to}"


def view_of(envelope: Envelope, *, verbose: bool = False) -> EnvelopeView | None:
    """An envelope in words; None for what only programs need, unless `verbose`."""
    if envelope.kind in _HIDDEN_KINDS and not verbose:
        return None
    text = _text_of(envelope)
    if text is None:
        if not verbose:
            return None
        text = _fallback(envelope)
    to = f" → {', '.join(envelope.to)}" if envelope.to and envelope.kind == "chat" else ""
    # Presence is about somebody else than its sender.
    sender = "" if envelope.kind == "system/presence" else envelope.sender
    return EnvelopeView(clock(envelope.ts), sender, to, text)


def lines_of(envelope: Envelope, *, verbose: bool = False) -> list[str]:
    """The same as lines of text; none for what only programs need."""
    view = view_of(envelope, verbose=verbose)
    if view is None:
        return []
    first, *rest = view.text.split("\n")
    return [f"{view.head}{first}", *(f"{' ' * 9}{line}" for line in rest)]


def clock(ts: str) -> str:
    """The local time of day."""
    try:
        return datetime.fromisoformat(ts).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return "--:--:--"


def _text_of(envelope: Envelope) -> str | None:
    payload = envelope.payload
    match envelope.kind:
        case "chat":
            return f": {payload.get('text')}"
        case "mcp/proposal":
            return f" proposes {_operation(envelope)}  [{short_id(envelope.id)}]"
        case "mcp/request":
            return _request(envelope)
        case "mcp/response":
            return f" answers {', '.join(envelope.to) or 'all'}: {_cut(_result(payload))}"
        case "mcp/reject":
            return f" rejects {_about(envelope)}: {payload.get('reason', 'no reason given')}"
        case "mcp/withdraw":
            return f" withdraws {_about(envelope)}: {payload.get('reason', 'no reason given')}"
        case "moot/approve":
            return f" votes for {_about(envelope)}"
        case "moot/votes":
            return f": {_votes(payload)}"
        case "moot/outcome":
            which = short_id(str(payload.get("proposal_id")))
            return f": the outcome of {which} is unknown: {unknown_reason(payload.get('reason'))}"
        case "moot/settle":
            note = f": {_cut(payload['note'])}" if isinstance(payload.get("note"), str) else ""
            return f" settles {_about(envelope)} as {payload.get('outcome')}{note}"
        case "moot/delegate":
            hours = float(payload.get("expires_in_seconds", 0)) / 3_600
            reason = f": {_cut(payload['reason'])}" if isinstance(payload.get("reason"), str) else ""
            return f" lets {payload.get('to')} decide in their place for {hours:.3g} h{reason}"
        case "moot/end-delegation" if "from" in payload:
            return f" no longer decides in the place of {payload['from']}"
        case "moot/end-delegation":
            return f" no longer lets {payload.get('to')} decide in their place"
        case "moot/assign":
            to = payload.get("to")
            whom = ", ".join(map(str, to)) if isinstance(to, list) and to else "anybody again"
            return f" says that {_about(envelope)} is for {whom}"
        case "moot/origins":
            # The same sentence stands at the proposal; what asks for nothing is no news.
            why = payload.get("why")
            return f" on {_about(envelope)}: {_cut(why)}" if isinstance(why, str) and why else None
        case "moot/opinion":
            said = "no" if payload.get("says") == "no" else "ask a person"
            why = _cut(str(payload.get("because")))
            return f" on {_about(envelope)}, in a model's words: {said}, because {why}"
        case "moot/preview":
            return f" on {_about(envelope)}: {_preview(payload)}"
        case "moot/endorse":
            return f" {_endorsement(payload)}"
        case "moot/plan":
            return _plan(payload)
        case "reasoning/start":
            return f" starts reasoning: {reasoning_text(payload)}  [{short_id(envelope.id)}]"
        case "reasoning/thought":
            return f" thinks: {reasoning_text(payload)}"
        case "reasoning/conclusion":
            return f" concludes: {reasoning_text(payload) or 'the reasoning is over'}"
        case "system/presence":
            return _presence(payload)
        case "system/error":
            told = "warning" if payload.get("error") in WARNING_CODES else "refused"
            return f": {told} ({payload.get('error')}): {payload.get('message')}"
        case "capability/grant":
            return f" grants {payload.get('recipient')}: {_cut(_granted(payload.get('capabilities')))}"
        case "capability/revoke":
            return f" revokes permissions of {payload.get('recipient')}"
        case "reasoning/cancel":
            return f" stops the reasoning of {', '.join(envelope.to) or 'themselves'}: {_reason(payload)}"
        case "participant/pause" | "participant/resume" | "participant/shutdown":
            word = {"pause": "pauses", "resume": "resumes", "shutdown": "shuts down"}
            whom = ", ".join(envelope.to) or "everyone"
            why = f": {payload['reason']}" if isinstance(payload.get("reason"), str) else ""
            return f" {word[envelope.kind.partition('/')[2]]} {whom}{why}"
        case "space/kick":
            return f" removes {payload.get('participant_id')}: {_reason(payload)}"
        case "space/invite":
            return f" invites {payload.get('participant_id')}"
        case "stream/request":
            return f" requests a stream: {_cut(str(payload.get('description') or 'no description'))}"
        case "stream/open":
            return f": stream {payload.get('stream_id')} of {payload.get('owner')} opened"
        case "stream/close":
            return f" closes stream {payload.get('stream_id', _about(envelope))}: {_reason(payload)}"
        case "trust/suggestion" if isinstance(payload.get("words"), str):
            return f" suggests a rule: {_cut(payload['words'])}"
        case "trust/rule":
            return _rule(payload)
        case "chat/acknowledge" | "capability/grant-ack" | "participant/status" | "space/invite-ack":
            return None
        case _:
            return _fallback(envelope)


def _request(envelope: Envelope) -> str | None:
    method = str(envelope.payload.get("method"))
    if method.startswith("notifications/"):
        return None
    if envelope.correlation_id:
        return f" approves {_about(envelope)}: {_operation(envelope)}"
    return f" calls {_operation(envelope)}"


def _operation(envelope: Envelope) -> str:
    payload = envelope.payload
    params = payload.get("params")
    params = params if isinstance(params, dict) else {}
    name = params.get("name") or params.get("uri")
    arguments = params.get("arguments")
    method = str(payload.get("method"))
    # A tool call is named by its tool alone; any other method by both.
    parts = [] if method == "tools/call" and name is not None else [method]
    parts += [str(name)] if name is not None else []
    parts.append(f"on {', '.join(envelope.to) or 'anyone'}")
    parts += [_cut(json.dumps(arguments, ensure_ascii=False))] if arguments else []
    return " ".join(parts)


def _result(payload: Json) -> str:
    error = payload.get("error")
    if isinstance(error, dict):
        what = "outcome unknown" if says_unknown(error) else f"error {error.get('code')}"
        return f"{what}: {error.get('message')}"
    result = payload.get("result")
    listed = _listed(result)
    if listed:
        return listed
    content = result.get("content") if isinstance(result, dict) else None
    texts = [
        str(block["text"]) for block in content or [] if isinstance(block, dict) and "text" in block
    ] if isinstance(content, list) else []  # fmt: skip
    failed = "failed: " if isinstance(result, dict) and result.get("isError") is True else ""
    return failed + ("\n".join(texts) or json.dumps(result, ensure_ascii=False))


def _listed(result: Json) -> str:
    """The names in a list result, without descriptions."""
    for what in ("tools", "prompts", "resources"):
        items = result.get(what) if isinstance(result, dict) else None
        if isinstance(items, list):
            named = [str(each.get("name") or each.get("uri")) for each in items if isinstance(each, dict)]
            return f"{len(items)} {what}: {', '.join(named)}" if named else f"no {what}"
    return ""


def _votes(payload: Mapping[str, Json]) -> str:
    needed, missing = payload.get("approvals_needed"), payload.get("approvals_missing")
    which = short_id(str(payload.get("proposal_id")))
    counters = payload.get("counters")
    if isinstance(counters, list) and counters:
        which = f"{which}, a changed version of {', '.join(short_id(str(each)) for each in counters)},"
    if not isinstance(needed, int) or not isinstance(missing, int):
        return f"votes for {which}"
    if not needed:
        texts = [each.text for each in read_effect_notes(payload.get("effects"))]
        texts += [each.text for each in read_budget_notes(payload.get("budgets"))]
        if counters and not texts:
            return f"{which} is proposed"
        return f"{which}: {'; '.join(texts) or 'no approvals are missing'}"
    refusal = payload.get("not_carried_out")
    why = f"; not carried out: {_cut(str(refusal.get('message')))}" if isinstance(refusal, dict) else ""
    return f"{which} has {needed - missing} of {needed} approvals{why}"


def _presence(payload: Json) -> str:
    who = payload.get("participant")
    name = who.get("id") if isinstance(who, dict) else "somebody"
    words = {"join": "joined", "leave": "left", "invited": "was invited"}
    event = str(payload.get("event"))
    reason = f" ({payload['reason']})" if isinstance(payload.get("reason"), str) else ""
    return f"{name} {words.get(event, event)}{reason}"


def _granted(capabilities: Json) -> str:
    return "; ".join(in_words(each) for each in capabilities) if isinstance(capabilities, list) else "nothing"


def _plan(payload: Mapping[str, Json]) -> str:
    if "withdraw" in payload:
        return f" withdraws the plan {short_id(str(payload['withdraw']))}"
    lines = payload.get("lines")
    count = len(lines) if isinstance(lines, list) else 0
    return f" lays out a plan: {_cut(str(payload.get('task')))} ({count} line{'s' if count != 1 else ''})"


def _rule(payload: Json) -> str:
    if payload.get("state") == "plan":
        return f": {_cut(str(payload.get('why')))}"
    rule: Json = payload.get("rule")
    name = rule.get("name") if isinstance(rule, dict) else rule
    what = f"rule {name} is" if name else "all rules are"
    why = next((text for key in ("why", "words") if isinstance(text := payload.get(key), str)), "")
    state = str(payload.get("state"))
    return f": {what} {_cut(_RULE_STATES.get(state, state))}{f': {_cut(why)}' if why else ''}"


def _endorsement(payload: Mapping[str, Json]) -> str:
    if "revoke" in payload:
        return f"revokes the endorsement {short_id(str(payload['revoke']))}"
    if "source" in payload:
        return f"endorses what {short_id(str(payload['source']))} says"
    return f"endorses “{_cut(str(payload.get('value')))}”"


def _reason(payload: Json) -> str:
    reason = payload.get("reason")
    return reason if isinstance(reason, str) else "no reason given"


def _about(envelope: Envelope) -> str:
    return ", ".join(short_id(id) for id in envelope.correlation_id) or "something"


def _fallback(envelope: Envelope) -> str:
    to = f" to {', '.join(envelope.to)}" if envelope.to else ""
    return f" {envelope.kind}{to} {_cut(json.dumps(envelope.payload, ensure_ascii=False))}"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"


def _preview(payload: Mapping[str, Json]) -> str:
    try:
        report = read_preview(payload)
    except ValueError:
        return "no preview"
    if not report.effect:
        return f"no preview that binds: {_cut(report.why)}"
    told = ", ".join(each.text() for each in report.changes[:3]) or "changes nothing"
    count = len(report.changes) - 3 + report.more
    return f"in a preview it {told}{f' and {count} more' if count > 0 else ''}"
