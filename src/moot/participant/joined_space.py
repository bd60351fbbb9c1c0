"""The space as one member sees it: what members do every day, and the parts for everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Unpack, overload

from moot.errors import UsageError
from moot.participant.connection import message_feed
from moot.participant.connection.envelope_sender import Addressees, CloseReason, OwnPause, SentEnvelope
from moot.participant.connection.message_feed import Reader, is_async
from moot.participant.connection.owner_lookup import OwnerLookup
from moot.participant.control.administration import Administration
from moot.participant.conversation.chat import ChatFormat
from moot.participant.conversation.reasoning import Reasoning, ReasoningParts
from moot.participant.conversation.transcript import Transcript
from moot.participant.member_parts import MemberParts
from moot.participant.member_session import MemberSession
from moot.participant.serving import request_server
from moot.participant.serving.own_offers import ResourceOptions, prompt_of, resource_of
from moot.participant.serving.tools import ToolOptions, tool_of
from moot.participant.space_calls import SpaceCalls
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.operation import Json, Payload
from moot.protocol.patterns import Rights

F = TypeVar("F", bound=Callable[..., Any])


class JoinedSpace(SpaceCalls):
    """One space as one member sees it. Made by `connect`; valid within its block."""

    def __init__(self, parts: MemberParts, session: MemberSession) -> None:
        super().__init__(parts, session)
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
        await self._sender.ready(request_server.HELD_ANSWER_SECONDS if given is None else given)

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

    def on_proposal(self, handler: F) -> F:
        """Call this for every proposal of others; works as a decorator."""
        self.proposals.on_proposal(handler)
        return handler

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
        return self._parts.readers.read(max_messages or message_feed.MAX_FEED_MESSAGES, own=own)

    @property
    def owner_lookup(self) -> OwnerLookup:
        """Whose names are that several members offer; for discovery."""
        return self._parts.owner_lookup
