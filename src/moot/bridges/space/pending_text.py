"""What a client is told about a call that waits for a decision: text for a model, facts for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moot.bridges.space.calls_file import RecordedCall
from moot.mcp.downstream.backend import PendingCall, text_result
from moot.mcp.eras import JsonObject
from moot.operations.text.call_text import (
    describe_deciders,
    proposal_link,
    rule_appliers,
    show_arguments,
    who_can_approve,
)
from moot.participant import JoinedSpace, ProposalComment
from moot.protocol import strict_json
from moot.protocol.operation import Json

STATUS_TOOL: Final = "moot_status"
# Arguments that programs are told whole; who waits has made the call, and the text has the beginning of it.
MAX_FACT_BYTES: Final = 1_000
# The latest comments, of which a model is told.
MAX_COMMENTS: Final = 10
NOT_NEEDED: Final = {"reason": "no_longer_needed"}


class PendingText:
    """Describes the pending calls of one member; `console` and `space_name` make the address of a page."""

    def __init__(self, space: JoinedSpace, console: str, space_name: str) -> None:
        self._space = space
        self.console = console
        self._space_name = space_name

    def details(self, record: RecordedCall) -> str:
        """The exact call, who can decide on it, and where."""
        call = record.proposal
        names = who_can_approve(self._space, call.to, call.method, call.params)
        link = proposal_link(self.console, self._space_name, call.id)
        arguments = show_arguments(call.method, call.params)
        deciders = describe_deciders(names, link, call.id, rule_appliers(self._space))
        said = "".join(f"\n{each.by} says about it: {each.text}" for each in self._comments(call.id))
        return f"The call: {record.what} with {arguments}. {deciders}{said}"

    def _comments(self, id: str) -> Sequence[ProposalComment]:
        seen = self._space.proposals.get(id)
        return () if seen is None else seen.comments[-MAX_COMMENTS:]

    def pending_result(self, pending: PendingCall, record: RecordedCall) -> JsonObject:
        """The result for a client that cannot wait: it says how to look the call up."""
        what, host = record.what, record.proposal.to
        if pending.decided.is_set():
            head = f"PENDING, approved and not finished yet: {what} of {host} is {pending.note}."
        else:
            head = (
                f"PENDING, not done yet: {what} of {host} needs somebody's approval and was proposed to the "
                f"space. {pending.note[:1].upper()}{pending.note[1:]}."
            )
        withdraw = ', or "withdraw": true to withdraw it' if self._may_withdraw() else ""
        same = (
            " This same call was pending already: it is one proposal, not two." if pending.repetitions else ""
        )
        text = (
            f"{head}{same} {pending.details()}\n"
            f'For its result call {STATUS_TOOL} with {{"handle": "{pending.handle}"}}; add "wait_seconds" to '
            f"wait{withdraw}. It stays valid when this client or the gateway is restarted. Do not do the "
            "same in another way meanwhile; tell your user what is pending, with the address or command."
        )
        about: JsonObject = {"moot/pending": self.facts(pending, record)}
        match pending.call.method:
            case "prompts/get":
                return {
                    "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
                    "_meta": about,
                }
            case "resources/read":
                uri = pending.call.params.get("uri")
                content = {"uri": uri, "mimeType": "text/plain", "text": text}
                return {"contents": [content], "_meta": about}
            case "completion/complete":
                return {"completion": {"values": []}, "_meta": about}
        return text_result(text, _meta=about)

    def facts(self, pending: PendingCall, record: RecordedCall) -> JsonObject:
        """One call for programs: what it is, and where it is decided."""
        call = record.proposal
        made: JsonObject = {
            "handle": pending.handle,
            "host": call.to,
            "method": call.method,
            "name": record.what,
            "approve_command": f"moot approve {pending.handle}",
        }
        arguments: Json = call.params.get("arguments", {})
        if len(strict_json.encode(arguments)) <= MAX_FACT_BYTES:
            made["arguments"] = arguments
        link = proposal_link(self.console, self._space_name, call.id)
        if link:
            made["url"] = link
        if comments := self._comments(call.id):
            made["comments"] = [each.as_json() for each in comments]
        if not pending.decided.is_set():
            made["can_be_approved_by"] = who_can_approve(self._space, call.to, call.method, call.params)
        return made

    def _may_withdraw(self) -> bool:
        return self._space.may("mcp/withdraw", NOT_NEEDED)
