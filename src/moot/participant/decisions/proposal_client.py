"""Proposing, deciding, and choosing between asking and proposing (MEW 3.2, 3.3; D-28)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import orjson

from moot.errors import (
    CapabilityViolation,
    MootError,
    NotAllowed,
    TimedOut,
    UsageError,
)
from moot.participant.calls.outcome import Outcome, SentEnvelope
from moot.participant.calls.request_client import LogHandler, ProgressHandler, RequestClient
from moot.participant.connection.envelope_sender import Addressees, EnvelopeSender, addressees
from moot.participant.connection.message_feed import Spawn
from moot.participant.decisions.own_proposal import Proposal
from moot.participant.decisions.proposal_list import ProposalList, SeenProposal
from moot.protocol.operation import Json

log = logging.getLogger(__name__)

Way = Literal["auto", "never", "always"]


@dataclass(frozen=True, slots=True)
class _Ask:
    """What is to be done, whichever way."""

    to: tuple[str, ...]
    method: str
    params: dict[str, Json] | None

    def payload(self) -> dict[str, Json]:
        body: dict[str, Json] = {"method": self.method}
        if self.params is not None:
            body["params"] = self.params
        return body


class ProposalClient:
    """Proposing, deciding, and choosing between asking and proposing."""

    def __init__(
        self, voice: EnvelopeSender, requests: RequestClient, proposals: ProposalList, spawn: Spawn
    ) -> None:
        self.voice = voice
        self._requests = requests
        self._proposals = proposals
        self._spawn = spawn
        self._own: dict[str, Proposal] = {}

    def own(self) -> list[Proposal]:
        """Our proposals that are not over."""
        return list(self._own.values())

    def may_request(self, to: Addressees, method: str, params: Mapping[str, Json] | None = None) -> bool:
        return self._may("mcp/request", to, method, params)

    def may_propose(self, to: Addressees, method: str, params: Mapping[str, Json] | None = None) -> bool:
        return self._may("mcp/proposal", to, method, params)

    def _may(self, kind: str, to: Addressees, method: str, params: Mapping[str, Json] | None) -> bool:
        body: dict[str, Json] = {"method": method}
        if params is not None:
            body["params"] = dict(params)
        if kind == "mcp/request":
            body |= {"jsonrpc": "2.0", "id": 0}
        return self.voice.may(kind, body, to)

    async def perform(
        self,
        to: Addressees,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
        log: LogHandler | None = None,
        wait_for_others: bool = False,
        propose: Way = "auto",
        context: str | None = None,
    ) -> Outcome:
        """Ask if our rights allow this very request, propose if not; raises NotAllowed if neither is so.

        `timeout` is for all of it. Cancelling calls the request off or withdraws the proposal.
        """
        if propose != "always" and self.may_request(to, method, params):
            try:
                answer = await self._requests.ask(
                    to, method, params, timeout=timeout, progress=progress, log=log, context=context
                )
                return Outcome(answer.result, "direct", self.voice.me, answer.host, answer.request_id)
            except CapabilityViolation:
                # The right went away a moment ago; the welcome that tells us so is on its way.
                if propose == "never" or not self.may_propose(to, method, params):
                    raise
        if propose == "never" or not self.may_propose(to, method, params):
            missing = ("mcp/request",) if propose == "never" else ("mcp/request", "mcp/proposal")
            raise NotAllowed(
                f"your rights allow neither to request {method} nor to propose it: ask for a grant of"
                f" {' or '.join(missing)}",
                missing=missing,
            )
        proposal = await self.propose(
            to,
            method,
            params,
            timeout=timeout,
            wait_for_others=wait_for_others,
            context=context,
            progress=progress,
            log=log,
        )
        try:
            return await proposal.outcome()
        except asyncio.CancelledError:
            self.take_back(proposal)
            raise

    async def propose(
        self,
        to: Addressees,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        timeout: float | None = None,
        wait_for_others: bool = False,
        context: str | None = None,
        about: Addressees = (),
        progress: ProgressHandler | None = None,
        log: LogHandler | None = None,
    ) -> Proposal:
        """Propose an operation; comes back once everybody has been shown it, raises Refused if nobody was.

        `to` names the host of the tool, not who is to decide. After `timeout` seconds it is withdrawn.
        """
        seconds = self.voice.limits.proposal_seconds if timeout is None else timeout
        body, heard = self._requests.overheard(params, progress, log)
        ask = _Ask(addressees(to), method, body)
        deadline = asyncio.get_running_loop().time() + seconds
        sent = self.voice.say("mcp/proposal", ask.payload(), to=ask.to, about=about, context=context)
        try:
            echo = await self.voice.echo(sent)
        except (asyncio.CancelledError, TimedOut):
            # It may be before everybody's eyes by now, and nobody would follow it.
            self._take_back(sent.id)
            raise
        seen = self._proposals.get(echo.id) or self._proposals.proposal(echo, own=True)
        proposal = Proposal(
            seen, self.voice, self.withdraw, deadline=deadline, wait_for_others=wait_for_others
        )
        self._own[seen.id] = proposal
        stop = None if heard is None else self._requests.overhear(seen, heard)

        async def follow() -> None:
            try:
                await proposal.follow()
            finally:
                self._own.pop(seen.id, None)
                if stop is not None:
                    stop()

        if self._spawn(follow()) is None:
            proposal.lose()
        return proposal

    def take_back(self, proposal: Proposal) -> None:
        """Best effort, without waiting: whoever waited has been cancelled."""
        if proposal.seen.status == "pending":
            self._take_back(proposal.id)

    def _take_back(self, id: str) -> None:
        try:
            self.voice.say("mcp/withdraw", {"reason": "no_longer_needed"}, about=id)
        except MootError as fault:
            log.debug("not withdrawn", extra={"proposal": id, "why": type(fault).__name__})

    async def withdraw(self, seen: SeenProposal, reason: str) -> None:
        await self.voice.confirmed("mcp/withdraw", {"reason": reason}, about=seen.id)

    # Deciding on those of others

    def find(self, which: SeenProposal | Proposal | str) -> SeenProposal:
        """The proposal meant; raises UsageError for an id that was never seen here."""
        if isinstance(which, SeenProposal):
            return which
        if isinstance(which, Proposal):
            return which.seen
        seen = self._proposals.get(which)
        if seen is None:
            raise UsageError(f"no proposal {which!r} was seen since we joined, or it is too long ago")
        return seen

    async def fulfil(
        self,
        which: SeenProposal | str,
        *,
        to: Addressees = (),
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
        log: LogHandler | None = None,
        context: str | None = None,
    ) -> Outcome:
        """MEW 3.2.1: make the proposed request, exactly as it was proposed, and wait for its answer.

        `to` is only needed for a proposal that names no host; `context` says why it is done. Raises
        ProposalSettled, Expired, ApprovalRequired, NotAllowed, and what a request raises. The proposal is
        spent as soon as the gateway has taken the request, even if the tool then fails (D-28).
        """
        seen = self.find(which)
        self._check_open(seen)
        host = seen.to or addressees(to)
        if not host:
            raise UsageError("the proposal names no host: say which member shall do it with to=")
        answer = await self._requests.ask(
            host,
            seen.method,
            seen.params if "params" in seen.envelope.payload else None,
            timeout=timeout,
            progress=progress,
            log=log,
            about=seen.id,
            context=context,
            encode=_as_proposed(seen.envelope.raw),
            add_token=False,
        )
        return Outcome(
            answer.result, "fulfilled", self.voice.me, answer.host, answer.request_id, proposal_id=seen.id
        )

    async def reject(
        self, which: SeenProposal | str, reason: str = "disagree", *, explanation: str | None = None
    ) -> SentEnvelope:
        """MEW 3.3.2: say no, with a code of REJECT_REASONS or your own; an explanation follows as chat.

        Raises ProposalSettled or Expired where there is nothing left to say no to, as far as is known here.
        """
        id, to = self._named(which)
        sent, _ = await self.voice.confirmed("mcp/reject", {"reason": reason}, about=id, to=to)
        if explanation:
            self.voice.say("chat", {"text": explanation, "format": "plain"}, about=sent.id, to=to)
        return sent

    async def vote(self, which: SeenProposal | str) -> SentEnvelope:
        """D-28: one vote for it, where the space asks for several; somebody still has to approve it."""
        id, _ = self._named(which)
        sent, _ = await self.voice.confirmed("moot/approve", {}, about=id)
        return sent

    def _named(self, which: SeenProposal | str) -> tuple[str, Sequence[str]]:
        """The id of a proposal that is open as far as we know, and who has to hear of it."""
        seen = self._proposals.get(which) if isinstance(which, str) else which
        if seen is None:
            return str(which), ()
        self._check_open(seen)
        return seen.id, (seen.proposer,)

    def _check_open(self, seen: SeenProposal) -> None:
        self._proposals.get(seen.id)  # lets time act on it
        seen.check_open()


class _BodySource(msgspec.Struct):
    method: msgspec.Raw
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Envelope(msgspec.Struct):
    payload: _BodySource


_bodies = msgspec.json.Decoder(_Envelope)


def _as_proposed(raw: bytes) -> Callable[[dict[str, Any]], Json]:
    """Method and params in the proposer's own bytes: no digit of a number may change on the way (D-28)."""
    body = _bodies.decode(raw).payload

    def encode(payload: dict[str, Json]) -> Json:
        same: dict[str, Json] = {**payload, "method": orjson.Fragment(bytes(body.method))}
        if not isinstance(body.params, msgspec.UnsetType):
            same["params"] = orjson.Fragment(bytes(body.params))
        return same

    return encode
