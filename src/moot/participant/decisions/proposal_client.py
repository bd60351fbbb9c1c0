"""Proposals and decisions, and the choice between request and proposal (MEW 3.2, 3.3; D-28)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Unpack

import orjson
from msgspec.structs import replace

from moot import tracing
from moot.errors import (
    ApprovalRequired,
    CapabilityViolation,
    EnvelopeTooLarge,
    McpError,
    MemberLeft,
    MootError,
    NotAllowed,
    TimedOut,
    UsageError,
    VoteCounted,
)
from moot.participant.calls.call_options import ApproveOptions, CallOptions, PerformOptions, ProposeOptions
from moot.participant.calls.outcome import Outcome
from moot.participant.calls.request_client import RequestClient
from moot.participant.connection.envelope_sender import Addressees, EnvelopeSender, SentEnvelope, addressees
from moot.participant.connection.envelope_writer import new_id
from moot.participant.connection.message_feed import Spawn
from moot.participant.decisions.own_proposal import Proposal, follow_proposal
from moot.participant.decisions.proposal_list import ProposalList
from moot.participant.decisions.seen_proposal import SeenProposal
from moot.participant.decisions.traced_proposal import TracedProposal
from moot.protocol.changes import changes_between
from moot.protocol.exact_numbers import has_rounded_number
from moot.protocol.operation import Json
from moot.protocol.preview_report import PREVIEW_METHOD, PreviewReport, read_preview
from moot.protocol.proposal_life import proposed_bytes
from moot.protocol.refusals import refusal_of

log = logging.getLogger(__name__)


class ProposalClient:
    """Makes proposals, decides on those of others, and chooses between request and proposal."""

    def __init__(
        self, sender: EnvelopeSender, requests: RequestClient, proposals: ProposalList, spawn: Spawn
    ) -> None:
        self._sender = sender
        self._requests = requests
        self._proposals = proposals
        self._spawn = spawn
        self._own: dict[str, Proposal] = {}

    def own(self) -> list[Proposal]:
        """Our own proposals that are not over."""
        return list(self._own.values())

    def may_request(self, to: Addressees, method: str, params: Mapping[str, Json] | None = None) -> bool:
        return self._sender.may("mcp/request", {"jsonrpc": "2.0", "id": 0, **_payload(method, params)}, to)

    def may_propose(self, to: Addressees, method: str, params: Mapping[str, Json] | None = None) -> bool:
        return self._sender.may("mcp/proposal", _payload(method, params), to)

    async def perform(
        self,
        to: Addressees,
        method: str,
        params: Mapping[str, Json] | None = None,
        **options: Unpack[PerformOptions],
    ) -> Outcome:
        """Request it if our rights allow exactly this request, else propose it; NotAllowed if neither is so.

        Cancelling cancels the request or withdraws the proposal.
        """
        mode = options.get("propose", "auto")
        shared = _call_options(options)
        if mode != "always" and self.may_request(to, method, params):
            try:
                answer = await self._requests.request(to, method, params, **shared)
                return Outcome(answer.result, "direct", self._sender.me, answer.host, answer.request_id)
            except (CapabilityViolation, ApprovalRequired):
                # The right was just revoked, and the welcome that says so is on its way; or it needs votes.
                if mode == "never" or not self.may_propose(to, method, params):
                    raise
        if mode == "never" or not self.may_propose(to, method, params):
            missing = ("mcp/request",) if mode == "never" else ("mcp/request", "mcp/proposal")
            raise NotAllowed(
                f"your rights allow neither to request {method} nor to propose it: ask for a grant of"
                f" {' or '.join(missing)}",
                missing=missing,
            )
        proposal = await self.propose(
            to, method, params, wait_for_others=options.get("wait_for_others", False), **shared
        )
        try:
            if (on_proposed := options.get("on_proposed")) is not None:
                on_proposed(proposal)
            return await proposal.outcome()
        except asyncio.CancelledError:
            self.withdraw_quietly(proposal)
            raise

    async def propose(
        self,
        to: Addressees,
        method: str,
        params: Mapping[str, Json] | None = None,
        **options: Unpack[ProposeOptions],
    ) -> Proposal:
        """Propose an operation; returns once everybody has got it, raises Refused if nobody did.

        `to` names the host of the tool, not who is to decide. After its timeout it is withdrawn.
        """
        given = options.get("timeout_seconds")
        seconds = self._sender.limits.proposal_seconds if given is None else given
        body, listener = self._requests.prepare_proposal(params, options.get("progress"), options.get("log"))
        deadline = asyncio.get_running_loop().time() + seconds
        traced = None
        if tracing.active is not None:
            traced = TracedProposal.start(tracing.active, addressees(to), method, params)

        def send() -> SentEnvelope:
            with nullcontext() if traced is None else traced.operation.current():
                return self._sender.send(
                    "mcp/proposal",
                    _payload(method, body),
                    to=to,
                    about=options.get("about", ()),
                    context=options.get("context"),
                    id=options.get("id"),
                )

        try:
            sent = send()
        except EnvelopeTooLarge:
            body = await self._sender.content.take_out(body or {}, is_result=False)
            sent = send()
        try:
            echo = await self._sender.wait_for_echo(sent)
        except (asyncio.CancelledError, TimedOut):
            # Others may see it by now, and nobody would follow it, unless somebody has written it down.
            if not options.get("stay_open", False):
                self._send_withdrawal(sent.id)
            raise
        seen = self._proposals.get(echo.id) or self._proposals.add(echo)
        stop = None if listener is None else self._requests.follow_fulfilment(seen, listener)
        proposal = Proposal(
            seen,
            self._sender,
            self._withdraw,
            deadline=deadline,
            wait_for_others=options.get("wait_for_others", False),
            stays_open=options.get("stay_open", False),
        )
        if traced is not None:
            traced.follow(proposal)
        return self._follow(proposal, stop)

    async def give_input(
        self, proposal_id: str, params: Mapping[str, Json], **options: Unpack[CallOptions]
    ) -> Outcome:
        """Go on with an approved call of ours whose host asked for input: `params` are those of the call with
        `inputResponses` and the `requestState` that came with the question.

        It needs no right and no other approval. Raises UsageError for a proposal that was never seen here,
        and what a request raises; a gateway that does not know this refuses it (CapabilityViolation).
        """
        seen = self.find(proposal_id)
        answer = await self._requests.request(
            seen.to, seen.method, params, about=seen.id, check_rights=False, **_call_options(options)
        )
        by = seen.fulfilled_by or ""
        return Outcome(answer.result, "fulfilled", by, answer.host, answer.request_id, seen.id)

    def resume(
        self, seen: SeenProposal, *, timeout_seconds: float | None = None, wait_for_others: bool = False
    ) -> Proposal:
        """Follow a proposal of ours from an earlier run as if it had just been made; it stays open."""
        known = self._own.get(seen.id)
        if known is not None:
            return known
        seconds = self._sender.limits.proposal_seconds if timeout_seconds is None else timeout_seconds
        deadline = asyncio.get_running_loop().time() + seconds
        proposal = Proposal(
            seen,
            self._sender,
            self._withdraw,
            deadline=deadline,
            wait_for_others=wait_for_others,
            stays_open=True,
        )
        return self._follow(proposal, None)

    def _follow(self, proposal: Proposal, stop: Callable[[], None] | None) -> Proposal:
        self._own[proposal.id] = proposal

        def done() -> None:
            self._own.pop(proposal.id, None)
            if stop is not None:
                stop()

        follow_proposal(proposal, self._spawn, done)
        return proposal

    def withdraw_quietly(self, proposal: Proposal) -> None:
        """Withdraw it if that is still possible, without waiting for it."""
        if proposal.seen.status == "pending":
            self._send_withdrawal(proposal.id)

    def _send_withdrawal(self, id: str) -> None:
        try:
            self._sender.send("mcp/withdraw", {"reason": "no_longer_needed"}, about=id)
        except MootError as fault:
            log.debug("not withdrawn", extra={"proposal": id, "why": type(fault).__name__})

    async def _withdraw(self, seen: SeenProposal, reason: str) -> None:
        await self._sender.send_confirmed("mcp/withdraw", {"reason": reason}, about=seen.id)

    # Decisions on those of others

    def find(self, which: SeenProposal | Proposal | str) -> SeenProposal:
        """The proposal with this id; raises UsageError if it was never seen here."""
        if isinstance(which, SeenProposal):
            return which
        if isinstance(which, Proposal):
            return which.seen
        seen = self._proposals.get(which)
        if seen is None:
            raise UsageError(f"no proposal {which!r} was seen since we joined, or it is too long ago")
        return seen

    async def approve(self, which: SeenProposal | str, **options: Unpack[ApproveOptions]) -> Outcome:
        """MEW 3.2.1: make the proposed request, exactly as it was proposed, and wait for its answer.

        Where votes are missing, vote: the last vote makes the request (D-103), any other raises VoteCounted.
        Raises ProposalSettled, Expired, ApprovalRequired, NotAllowed, and what a request raises. The proposal
        is used up as soon as the gateway has accepted the request, even if the tool then fails (D-28).
        """
        seen = self.find(which)
        self._proposals.expire_due()
        seen.check_open()
        changed = options.get("params")
        if changed is not None and changes_between(seen.envelope.payload, _payload(seen.method, changed)):
            return await self._approve_changed(seen, changed, options)
        if seen.previews:
            await self._check_preview(seen)
        if not seen.missing_for(self._sender.me):
            try:
                return await self._fulfil(seen, options)
            except ApprovalRequired as fault:
                if "effect" in fault.details or not options.get("vote", True):
                    raise
        elif not options.get("vote", True):
            raise ApprovalRequired(seen.vote_text, proposal_id=seen.id)
        return await self._approve_by_vote(seen, options)

    async def _check_preview(self, seen: SeenProposal) -> None:
        """Raises UsageError if the files of a preview have changed; then there is a new one."""
        params: dict[str, Json] = {"proposal": seen.id, "check": True}
        shown = seen.preview
        if shown is None or not shown.effect or not self.may_request(seen.to, PREVIEW_METHOD, params):
            return
        with suppress(McpError, MemberLeft, ValueError):
            answer = await self._requests.request(seen.to, PREVIEW_METHOD, params)
            if read_preview(answer.result.get("report")).effect != shown.effect:
                changed = "files have changed since the preview" if shown.plan is None else "the plan changed"
                raise UsageError(
                    f"nothing was done: {changed}, and there is a new one; look at it with "
                    f"`moot preview {seen.id[:8]}`, then approve again"
                )

    async def _approve_changed(
        self, seen: SeenProposal, params: Mapping[str, Json], options: ApproveOptions
    ) -> Outcome:
        """Propose the changed call as ours, and carry it out in place of the original, which it settles."""
        host = seen.to or addressees(options.get("to", ()))
        if has_rounded_number(seen.envelope.raw):
            raise UsageError(
                "a number in it has more digits than can be kept while something else is changed: reject it, "
                "or make the call yourself"
            )
        missing = [] if self.may_propose(host, seen.method, params) else ["mcp/proposal"]
        if not seen.approvals_needed and not self.may_request(host, seen.method, params):
            missing.append("mcp/request")
        if missing:
            raise NotAllowed(
                f"approving with changes needs a right to propose and to make the changed call: ask for a "
                f"grant of {' and '.join(missing)}",
                missing=tuple(missing),
            )
        made = await self.propose(
            host, seen.method, params, about=seen.id, stay_open=True, wait_for_others=True
        )
        try:
            outcome = await self._fulfil(made.seen, options, instead_of=seen)
        except BaseException as fault:
            if isinstance(fault, ApprovalRequired) and made.seen.approvals_missing:
                raise VoteCounted(
                    f"your changed version {made.id[:8]} is proposed: {made.seen.vote_text}",
                    missing=made.seen.approvals_missing,
                    needed=made.seen.approvals_needed,
                ) from None
            # Nothing was carried out, so nobody else should do it by mistake.
            self.withdraw_quietly(made)
            raise
        return replace(outcome, proposal_id=seen.id, changes=seen.changes)

    def _originals_of(self, seen: SeenProposal, options: ApproveOptions) -> list[str]:
        """What approving a counter-proposal settles beside it; rules, which do not vote, settle nothing."""
        if not seen.counters or not options.get("vote", True):
            return []
        originals = (self._proposals.get(id) for id in seen.counters)
        return [each.id for each in originals if each is not None and each.status == "pending"]

    async def _approve_by_vote(self, seen: SeenProposal, options: ApproveOptions) -> Outcome:
        if self._sender.me in seen.votes and seen.approvals_missing:
            raise _vote_counted(seen)
        counted = asyncio.Event()
        vote_id = new_id()

        def watch() -> None:
            if seen.counted_vote == vote_id:
                counted.set()

        seen.watchers.append(watch)
        try:
            about = (seen.id, *options.get("repeats", ()))
            await self._sender.wait_for_echo(self._sender.send("moot/approve", {}, about=about, id=vote_id))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._sender.limits.answer_seconds):
                    await counted.wait()
        finally:
            seen.watchers.remove(watch)
        if seen.counted_request is None:
            if (
                seen.not_carried_out is not None
                and seen.not_carried_out.get("error") != "capability_violation"
            ):
                raise refusal_of(seen.not_carried_out)
            raise _vote_counted(seen)
        # The gateway has made the request in our name; its answer comes as to any request of ours.
        given = options.get("timeout_seconds")
        seconds = self._sender.limits.request_seconds if given is None else given
        deadline = asyncio.get_running_loop().time() + seconds
        made = Proposal(
            seen, self._sender, self._withdraw, deadline=deadline, wait_for_others=True, stays_open=True
        )
        follow_proposal(made, self._spawn, lambda: None)
        return await made.outcome()

    async def _fulfil(
        self, seen: SeenProposal, options: ApproveOptions, *, instead_of: SeenProposal | None = None
    ) -> Outcome:
        settled = [instead_of.id] if instead_of is not None else self._originals_of(seen, options)
        host = seen.to or addressees(options.get("to", ()))
        if not host:
            raise UsageError("the proposal names no host: say which member shall do it with to=")
        answer = await self._requests.request(
            host,
            seen.method,
            seen.params if "params" in seen.envelope.payload else None,
            about=(seen.id, *settled, *options.get("repeats", ())),
            proposal=seen.envelope,
            as_proposed=_as_proposed(seen.envelope.raw, seen.preview),
            **_call_options(options),
        )
        return Outcome(
            answer.result, "fulfilled", self._sender.me, answer.host, answer.request_id, proposal_id=seen.id
        )

    async def reject(
        self, which: SeenProposal | str, reason: str = "disagree", *, explanation: str | None = None
    ) -> SentEnvelope:
        """MEW 3.3.2: reject it, with a code of REJECT_REASONS or your own; an explanation follows as chat.

        Raises ProposalSettled or Expired if it is already over, as far as is known here.
        """
        id, to = self._open_id(which)
        sent, _ = await self._sender.send_confirmed("mcp/reject", {"reason": reason}, about=id, to=to)
        if explanation:
            self._sender.send("chat", {"text": explanation, "format": "plain"}, about=sent.id, to=to)
        return sent

    async def vote(self, which: SeenProposal | str) -> SentEnvelope:
        """D-28: one vote for it, where the space requires several; the last one makes the call (D-103)."""
        id, _ = self._open_id(which)
        sent, _ = await self._sender.send_confirmed("moot/approve", {}, about=id)
        return sent

    async def settle(self, which: SeenProposal | str, outcome: str, note: str | None) -> SentEnvelope:
        """D-99: say what came of an approved call whose outcome nobody knows."""
        id = which if isinstance(which, str) else which.id
        payload: dict[str, Json] = {"outcome": outcome}
        if note is not None:
            payload["note"] = note
        sent, _ = await self._sender.send_confirmed("moot/settle", payload, about=id)
        return sent

    def _open_id(self, which: SeenProposal | str) -> tuple[str, Sequence[str]]:
        """The id of a proposal that is open as far as we know, and who proposed it."""
        seen = self._proposals.get(which) if isinstance(which, str) else which
        if seen is None:
            return str(which), ()
        self._proposals.expire_due()
        seen.check_open()
        return seen.id, (seen.proposer,)


def _vote_counted(seen: SeenProposal) -> VoteCounted:
    text = seen.vote_text or "others have to vote, too"
    if not seen.approvals_missing and seen.not_carried_out is not None:
        text = f"{text}: you may vote, but not make this call; somebody who may approves it"
    return VoteCounted(
        f"your vote is counted: {text}", missing=seen.approvals_missing, needed=seen.approvals_needed
    )


def _payload(method: str, params: Mapping[str, Json] | None) -> dict[str, Json]:
    return {"method": method} if params is None else {"method": method, "params": dict(params)}


def _call_options(options: CallOptions) -> CallOptions:
    """Those that every operation has, without the ones that only some have."""
    return CallOptions(
        timeout_seconds=options.get("timeout_seconds"),
        progress=options.get("progress"),
        log=options.get("log"),
        context=options.get("context"),
    )


def _as_proposed(raw: bytes, preview: PreviewReport | None) -> dict[str, Json]:
    same: dict[str, Json] = {name: orjson.Fragment(value) for name, value in proposed_bytes(raw).items()}
    if preview is not None and preview.effect:
        # What was seen is what is applied.
        same["effect"] = preview.effect
    return same
