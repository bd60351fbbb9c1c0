"""The space as one member sees it: what members do every day, and the parts for everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeVar, Unpack, overload

from moot.errors import McpError, ToolFailed, UsageError
from moot.mcp.eras import LISTS
from moot.mcp.list_pages import list_pages
from moot.participant.calls.call_options import (
    ApproveOptions,
    CallOptions,
    PerformOptions,
    ProposeOptions,
    RequestOptions,
)
from moot.participant.calls.outcome import Outcome
from moot.participant.connection.envelope_sender import Addressees, CloseReason, OwnPause, SentEnvelope
from moot.participant.connection.history import fetch_history
from moot.participant.connection.message_feed import Reader, is_async
from moot.participant.connection.owner_lookup import OwnerLookup
from moot.participant.control.administration import Administration
from moot.participant.conversation.chat import ChatFormat
from moot.participant.conversation.reasoning import Reasoning, ReasoningParts
from moot.participant.conversation.transcript import Transcript
from moot.participant.decisions.own_proposal import Proposal
from moot.participant.decisions.seen_proposal import RecordedProposal, SeenProposal
from moot.participant.member_parts import MemberParts
from moot.participant.member_session import MemberSession
from moot.participant.serving.own_offers import ResourceOptions, prompt_of, resource_of
from moot.participant.serving.tools import ToolOptions, tool_of
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.operation import Json, Payload
from moot.protocol.patterns import Rights
from moot.protocol.proposal_life import GatewayProposal

F = TypeVar("F", bound=Callable[..., Any])
# The list methods of MCP, by the name of the list in their results.
LIST_METHODS: Final[Mapping[str, str]] = {kind: method for method, kind in LISTS.items()}


class JoinedSpace:
    """One space as one member sees it. Made by `connect`; valid within its block."""

    def __init__(self, parts: MemberParts, session: MemberSession) -> None:
        # Who is here, with which rights.
        self.roster = parts.roster
        # Proposals of everybody, and their state.
        self.proposals = parts.proposals
        # Chats that we have not acknowledged.
        self.chats = parts.chats
        # Reasoning of everybody.
        self.contexts = parts.contexts
        # Streams: open, read and write them.
        self.streams = parts.streams
        # What we offer to others.
        self.offers = parts.offers
        # Runs the requests of others; a bridge gives it a handler of its own.
        self.server = parts.server
        # Grants, invitations, and controls of other members.
        self.admin = Administration(parts.sender, parts.roster, parts.acks)
        # What we do when others control us.
        self.controls = parts.controls
        # Messages that were dropped because they broke the protocol.
        self.violations = parts.violations
        # Which envelope refers to which.
        self.correlations = parts.correlations
        self.counts = parts.sender.counts
        self.limits = parts.options.limits
        self.spawn = parts.tasks.spawn
        self._parts = parts
        self._session = session
        self._sender = parts.sender

    # Who and where

    @property
    def me(self) -> str:
        """Our runtime id."""
        return self._sender.me

    @property
    def space(self) -> str:
        """The name of the space as it was given to `connect`; empty for the only one of a gateway."""
        return self._parts.options.space

    @property
    def name(self) -> str:
        """Our logical name, which the configuration and capabilities use; mostly the same as `me`."""
        return self.roster.own_name

    @property
    def dialect(self) -> DialectName:
        return self._sender.dialect

    @property
    def rights(self) -> Rights:
        """What the latest welcome allows us (MEW 5.2)."""
        return self._sender.rights

    @property
    def state(self) -> Literal["joined", "reconnecting", "closed"]:
        if self.close_reason is not None:
            return "closed"
        return "joined" if self._sender.is_joined else "reconnecting"

    @property
    def close_reason(self) -> CloseReason | None:
        """Why the connection ended for good; None while it has not."""
        return self._session.close_reason

    @property
    def ending(self) -> CloseReason | None:
        """What 0.1 called `close_reason`: agents that its `moot init` made ask for it."""
        return self.close_reason

    @property
    def paused(self) -> OwnPause | None:
        """By whom, why and until when we are paused; None if we are not (MEW 3.9.1)."""
        return self._sender.pause

    @property
    def transcript(self) -> Transcript | None:
        return self.controls.transcript

    def may(self, kind: str, payload: Payload | None = None, to: Addressees = ()) -> bool:
        """Whether our rights allow this envelope; replies to others need none."""
        return self._sender.may(kind, payload, to)

    def may_request(self, to: Addressees, method: str, params: Mapping[str, Json] | None = None) -> bool:
        """Whether our rights allow exactly this request."""
        return self._parts.proposal_client.may_request(to, method, params)

    def may_propose(self, to: Addressees, method: str, params: Mapping[str, Json] | None = None) -> bool:
        """Whether our rights allow to propose it."""
        return self._parts.proposal_client.may_propose(to, method, params)

    # Staying and leaving

    async def stay(self) -> CloseReason:
        """Wait for the end: a shutdown, a removal, a replaced connection, or `close`."""
        return await self._session.wait_closed()

    def renew(self) -> None:
        """Go on under a newer token, which the function that was given to `connect` returns from now on.

        It has to be of the same account at the provider; a wrong one is refused and changes nothing.
        """
        self._session.link.renew()

    async def close(self, reason: str = "leaving") -> None:
        """Leave now; the block may go on, but nothing is sent or received any more."""
        await self._session.close(reason)

    async def ready(self, timeout_seconds: float | None = None) -> None:
        """Wait until we are connected and not paused; raises TimedOut."""
        given = timeout_seconds
        await self._sender.ready(self.limits.held_answer_seconds if given is None else given)

    def on_reconnected(self, handler: F) -> F:
        """Call this without arguments when we are back after a lost connection; works as a decorator."""

        def call(_: None) -> Any:
            return handler()

        async def call_and_wait(_: None) -> None:
            await handler()

        self._session.on_reconnected(call_and_wait if is_async(handler) else call)
        return handler

    # Sending

    async def chat(
        self,
        text: str,
        *,
        to: Addressees = (),
        format: ChatFormat | None = None,
        about: Addressees = (),
        context: str | None = None,
    ) -> SentEnvelope:
        """Say something to everybody, or to some (everybody gets it all the same); `about` makes it a reply.

        Returns once it was delivered; raises Refused when the gateway does not deliver it.
        """
        if format not in (None, "plain", "markdown"):
            raise UsageError(f"a chat is plain or markdown, not {format!r}")
        payload: dict[str, Json] = {"text": text}
        if format is not None:
            payload["format"] = format
        sent, _ = await self._sender.send_confirmed("chat", payload, to=to, about=about, context=context)
        return sent

    async def send(
        self,
        kind: str,
        payload: Payload | None = None,
        *,
        to: Addressees = (),
        about: Addressees = (),
        context: str | None = None,
        confirm: bool = False,
        id: str | None = None,
    ) -> SentEnvelope:
        """Send one envelope of any kind that members send; `about` becomes `correlation_id`.

        With `confirm` it waits until the gateway has delivered it, and raises Refused if it does not. An `id`
        of your own is for sending the same envelope again after a lost connection: it is delivered once.
        """
        sent = self._sender.send(kind, payload, to=to, about=about, context=context, id=id)
        if confirm:
            await self._sender.wait_for_echo(sent)
        return sent

    async def notify(
        self,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        to: Addressees = (),
        about: Addressees = (),
    ) -> bool:
        """Send an MCP notification; False if we have no right to, which is counted and no error."""
        return self.server.notify(method, params, to=to, about=about)

    async def report_status(self, to: Addressees = (), **metrics: Json) -> None:
        """Send our status without being asked (MEW 3.9.4); metrics are named in snake_case."""
        await self._parts.reporter.report(to, **metrics)

    def reasoning(
        self,
        message: str,
        *,
        about: Addressees = (),
        under: Reasoning | str | None = None,
        stop: bool = True,
        stream: bool = False,
    ) -> Reasoning:
        """A reasoning sequence as a block (MEW 3.5); `stream=True` opens a stream for it, too.

        If somebody cancels it the block raises ReasoningCancelled; with `stop=False` only `cancelled` is set.
        """
        parts = self._parts
        needed = ReasoningParts(parts.sender, parts.contexts, parts.streams, parts.proposal_client)
        return Reasoning(needed, message, about=about, under=under, stop=stop, stream=stream)

    async def cancel_reasoning(
        self, context: str, reason: str = "superseded", *, about: Addressees = ()
    ) -> SentEnvelope:
        """End a reasoning sequence of anybody, named by the id of its start or its context."""
        if not context:
            raise UsageError("reasoning/cancel must name the sequence: the id of its reasoning/start")
        sequence = self.contexts.sequence_of(context)
        sent, _ = await self._sender.send_confirmed(
            "reasoning/cancel",
            {"reason": reason},
            to=() if sequence is None else sequence.owner,
            about=about,
            context=context if sequence is None else sequence.path,
        )
        return sent

    # Calling others

    async def call(
        self,
        member: str,
        tool: str,
        arguments: Mapping[str, Json] | None = None,
        *,
        meta: Mapping[str, Json] | None = None,
        **options: Unpack[PerformOptions],
    ) -> Outcome:
        """Call a tool if we may, else propose the call; raises ToolFailed when the tool reports a failure.

        Everything else is as in `perform`; `meta` becomes `_meta` of the request.
        """
        params: dict[str, Json] = {"name": tool, "arguments": dict(arguments or {})}
        if meta is not None:
            params["_meta"] = dict(meta)
        outcome = await self.perform(member, "tools/call", params, **options)
        if outcome.is_error:
            raise ToolFailed(tool, outcome.text, outcome.result)
        return outcome

    async def perform(
        self,
        to: Addressees,
        method: str,
        params: Mapping[str, Json] | None = None,
        **options: Unpack[PerformOptions],
    ) -> Outcome:
        """Request it if our rights allow exactly this request, else propose it and wait for the result.

        Raises NotAllowed when neither is allowed, Rejected, Withdrawn, Expired, and all that `request` does.
        Cancelling cancels the request or withdraws the proposal.
        """
        return await self._parts.proposal_client.perform(to, method, params, **options)

    async def request(
        self,
        to: Addressees,
        method: str,
        params: Mapping[str, Json] | None = None,
        **options: Unpack[RequestOptions],
    ) -> dict[str, Any]:
        """The raw result of an MCP request; raises McpError, TimedOut, MemberLeft, NotAllowed, Refused, …

        `to` is the host; without one everybody is asked and the first answer counts. Cancelling is safe: the
        host is told.
        """
        return (await self._parts.requests.request(to, method, params, **options)).result

    async def request_all(
        self, method: str, params: Mapping[str, Json] | None = None, *, timeout_seconds: float = 2.0
    ) -> dict[str, dict[str, Any] | McpError]:
        """Everybody's answer to a list method, by member, as far as they come in time."""
        return await self._parts.requests.request_all(method, params, timeout_seconds)

    async def list_all(
        self,
        member: str,
        what: str,
        *,
        timeout_seconds: float | None = None,
        on_page: Callable[[], None] | None = None,
    ) -> list[dict[str, Any]]:
        """All tools, resources, resourceTemplates or prompts of a member, each name once.

        Follows its cursors, for `max_list_pages` at most; a later page that it refuses ends the list. Each
        page may take `timeout_seconds`, and `on_page` is called when one has come.
        """
        method = LIST_METHODS.get(what)
        if method is None:
            raise UsageError(f"a member lists {', '.join(LIST_METHODS)}; not {what!r}")

        async def request(params: dict[str, Json]) -> dict[str, Any]:
            page = await self.request(member, method, params or None, timeout_seconds=timeout_seconds)
            if on_page is not None:
                on_page()
            return page

        return await list_pages(request, method, max_pages=self.limits.max_list_pages, source=member)

    # Proposals

    async def propose(
        self,
        to: Addressees,
        method: str,
        params: Mapping[str, Json] | None = None,
        **options: Unpack[ProposeOptions],
    ) -> Proposal:
        """Propose an operation; returns when everybody has got it (MEW 3.2).

        `to` names the member that would do it, not who is to decide.
        """
        return await self._parts.proposal_client.propose(to, method, params, **options)

    async def resume_proposals(
        self,
        records: Iterable[RecordedProposal] = (),
        *,
        timeout_seconds: float | None = None,
        wait_for_others: bool = False,
    ) -> list[Proposal]:
        """Follow our own proposals of an earlier run again: those written down, and all that are open.

        The gateway says what became of them meanwhile; results come from its history, as far as it has them.
        `wait_for_others` is for those written down; of others it is not known how they were made, so they go
        on after a rejection.
        """
        proposals, router = self.proposals, self._session.router
        # Open ones come with their envelope, in the bytes that an approval has to repeat.
        await self.refresh_proposals()
        known = list(records)
        missing = [record for record in known if proposals.get(record.id) is None]
        for record in missing:
            proposals.add_recorded(record, self.me)
        if known:
            since = min(record.proposed_at for record in known) - self.limits.history_margin_seconds
            history = await self.history(since)
            router.replay_kinds(history, ("mcp/reject", "chat"))
            if missing:
                await self.refresh_proposals()
            # Only now is it known which request a response belongs to.
            router.replay_kinds(history, ("mcp/response",))
        ours = {seen.id: seen for seen in proposals if seen.proposer == self.me}
        recorded = {record.id for record in known}
        resume = self._parts.proposal_client.resume
        return [
            resume(
                seen,
                timeout_seconds=timeout_seconds,
                wait_for_others=wait_for_others or seen.id not in recorded,
            )
            for seen in ours.values()
        ]

    async def approve(self, proposal: SeenProposal | str, **options: Unpack[ApproveOptions]) -> Outcome:
        """Approve a proposal: make the proposed request, exactly as proposed, and wait for the result.

        Where the space requires several votes, this is one: the last vote makes the request, any other raises
        VoteCounted. Raises ProposalSettled, Expired, NotAllowed, and what `request` raises, and with
        `vote=False` ApprovalRequired. The protocol calls this fulfilling.
        """
        return await self._parts.proposal_client.approve(proposal, **options)

    async def give_input(
        self, proposal_id: str, params: Mapping[str, Json], **options: Unpack[CallOptions]
    ) -> Outcome:
        """Go on with an approved call of ours whose host asked for input (`Outcome.input_required`).

        `params` are those of the call with `inputResponses` and the `requestState` of the question. The
        approval covers it; a gateway other than Moot's may refuse it (CapabilityViolation).
        """
        return await self._parts.proposal_client.give_input(proposal_id, params, **options)

    async def reject(
        self, proposal: SeenProposal | str, reason: str = "disagree", *, explanation: str | None = None
    ) -> SentEnvelope:
        """Reject a proposal with a code of REJECT_REASONS or your own (MEW 3.3.2)."""
        return await self._parts.proposal_client.reject(proposal, reason, explanation=explanation)

    async def vote(self, proposal: SeenProposal | str) -> SentEnvelope:
        """Vote for a proposal, where the space requires several votes; the last one makes the call.

        `approve` does the same, and waits for the result.
        """
        return await self._parts.proposal_client.vote(proposal)

    async def settle(
        self, proposal: SeenProposal | str, outcome: Literal["done", "failed"], *, note: str | None = None
    ) -> SentEnvelope:
        """Say what came of an approved call whose outcome nobody knows; raises ProposalSettled, NotAllowed.

        Everybody sees it. An answer of the host that comes later counts more.
        """
        return await self._parts.proposal_client.settle(proposal, outcome, note)

    def on_proposal(self, handler: F) -> F:
        """Call this for every proposal of others; works as a decorator."""
        self.proposals.on_proposal(handler)
        return handler

    # Offering

    @overload
    def tool(self, function: F, **options: Unpack[ToolOptions]) -> F: ...

    @overload
    def tool(self, function: None = None, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(self, function: Callable[..., Any] | None = None, **options: Unpack[ToolOptions]) -> Any:
        """Offer a function as a tool: `@space.tool`, or `@space.tool(name=…)`; returns the function."""

        def offer(function: F) -> F:
            self.offers.add_tool(tool_of(function, **options))
            return function

        return offer if function is None else offer(function)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Offer what a function reads under a URI; `{parts}` in it become its arguments."""

        def offer(function: F) -> F:
            self.offers.add_resource(resource_of(function, uri, **options))
            return function

        return offer

    @overload
    def prompt(self, function: F) -> F: ...

    @overload
    def prompt(
        self, function: None = None, *, name: str | None = None, description: str | None = None
    ) -> Callable[[F], F]: ...

    def prompt(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> Any:
        """Offer a function that writes a prompt."""

        def offer(function: F) -> F:
            self.offers.add_prompt(prompt_of(function, name=name, description=description))
            return function

        return offer if function is None else offer(function)

    # Receiving

    def on(self, kind: str, *, own: bool = False) -> Callable[[F], F]:
        """Call the function for every envelope of a kind; `*` as in capabilities. `own`: ours, too.

        Plain functions are called at once and must be quick; coroutine functions run for one envelope after
        the other, each handler by itself.
        """

        def register(handler: F) -> F:
            self._parts.handlers.add(kind, handler, own=own)
            return handler

        return register

    def envelopes(self, *, own: bool = False, max_messages: int | None = None) -> Reader[Envelope]:
        """All envelopes from now on, in order, for `async for`; `MissedMessages` where some were missed.

        `own`: ours, too.
        """
        readers = self._parts.all_readers if own else self._parts.other_readers
        return readers.read(max_messages or self.limits.max_feed_messages)

    async def history(self, since: float = 0.0) -> list[Envelope]:
        """What the gateway still has of what we were sent since then (seconds since 1970), oldest first.

        Its history is bounded and may be turned off. Nothing of it is handled or checked here.
        """
        return await fetch_history(self._parts.options, self._session.link.url, self.me, since) or []

    async def fetch_content(self, sha256: str) -> bytes:
        """A large value that a message names (`_meta["moot/content"]`).

        Raises InvalidRequest if the gateway has none of this hash (any more). What we call and serve has its
        values put back already.
        """
        return await self._parts.sender.content.fetch(sha256)

    async def fetch_params(self, proposal: SeenProposal) -> dict[str, Json]:
        """The params of a proposal with their large values, as its host will get them; raises the same."""
        return await self._parts.sender.content.put_back(proposal.params, is_result=False)

    async def recall(self, since: float = 0.0) -> list[Envelope]:
        """Learn from the history what was sent before we joined: proposals, chats and reasoning.

        No handler sees it. Returns what was new and passed the checks, oldest first. The gateway is asked
        for what is open, too, however long ago it was proposed: `proposals.known` says whether it told.
        """
        past = self._session.router.replay(await self.history(since))
        await self.refresh_proposals()
        return past

    async def look_up_proposal(self, id: str) -> GatewayProposal | None:
        """What the gateway says about one proposal of anybody, settled or not; None if it remembers none."""
        return await self._parts.proposal_sync.look_up(id, self._session.link.url)

    @property
    def owner_lookup(self) -> OwnerLookup:
        """Whose names are that several members offer; for discovery."""
        return self._parts.owner_lookup

    async def refresh_proposals(self) -> bool:
        """Ask the gateway which proposals are open and what became of those we knew; whether it told.

        After a reconnect this happens by itself.
        """
        return await self._parts.proposal_sync.refresh(self._session.link.url)
