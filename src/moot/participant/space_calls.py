"""What a member asks: calls of other members, proposals, and what the gateway still has of the past."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Unpack

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
from moot.participant.connection.envelope_sender import Addressees, SentEnvelope
from moot.participant.connection.gateway_reads import (
    HISTORY_MARGIN_SECONDS,
    JournalPast,
    fetch_history,
    fetch_journal,
)
from moot.participant.decisions.own_proposal import Proposal
from moot.participant.decisions.plan_client import LaidOutPlan, PlanClient
from moot.participant.decisions.seen_proposal import RecordedProposal, SeenProposal
from moot.participant.member_parts import MemberParts
from moot.participant.member_session import MemberSession
from moot.protocol.envelope import Envelope
from moot.protocol.gateway_proposal import GatewayProposal
from moot.protocol.operation import Json
from moot.protocol.opinion import OPINION_KIND
from moot.protocol.origin_report import ORIGINS_KIND

# Pages of one list (`tools/list` with cursors).
MAX_LIST_PAGES: Final = 100

# The list methods of MCP, by the name of the list in their results.
LIST_METHODS: Final[Mapping[str, str]] = {kind: method for method, kind in LISTS.items()}


class SpaceCalls:
    """The part of a joined space that asks others and the gateway."""

    def __init__(self, parts: MemberParts, session: MemberSession) -> None:
        self._parts = parts
        self._session = session
        self._plan_client: PlanClient | None = None

    def may_request(self, to: Addressees, method: str, params: Mapping[str, Json] | None = None) -> bool:
        """Whether our rights allow exactly this request."""
        return self._parts.proposal_client.may_request(to, method, params)

    def may_propose(self, to: Addressees, method: str, params: Mapping[str, Json] | None = None) -> bool:
        """Whether our rights allow to propose it."""
        return self._parts.proposal_client.may_propose(to, method, params)

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

        Follows its cursors, for `MAX_LIST_PAGES` at most; a later page that it refuses ends the list. Each
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

        return await list_pages(request, method, max_pages=MAX_LIST_PAGES, source=member)

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
        parts, router = self._parts, self._session.router
        proposals, me = parts.proposals, parts.sender.me
        # Open ones come with their envelope, in the bytes that an approval has to repeat.
        await self.refresh_proposals()
        known = list(records)
        missing = [record for record in known if proposals.get(record.id) is None]
        for record in missing:
            proposals.add_recorded(record, me)
        if known:
            since = min(record.proposed_at for record in known) - HISTORY_MARGIN_SECONDS
            history = await self.history(since)
            router.replay_kinds(history, ("mcp/reject", "chat"))
            if missing:
                await self.refresh_proposals()
            # Only now is it known which request a response belongs to.
            router.replay_kinds(history, ("mcp/response",))
        ours = {seen.id: seen for seen in proposals if seen.proposer == me}
        recorded = {record.id for record in known}
        resume = parts.proposal_client.resume
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

        With `params` it is approved with changes: exactly the call with these params is made instead, by a
        counter-proposal of ours. That settles the proposal, and its proposer gets the result with what was
        changed (`Outcome.changes`).
        """
        return await self._parts.proposal_client.approve(proposal, **options)

    async def comment(self, proposal: SeenProposal | str, text: str, *, to: Addressees = ()) -> SentEnvelope:
        """Say something about a proposal: a chat that refers to it (`SeenProposal.comments`).

        It is addressed to those whom it mentions (`@ana`), or else to the proposer; everybody sees it.
        """
        seen = self._parts.proposal_client.find(proposal)
        return await self._parts.proposal_talk.comment(seen, text, to)

    async def assign(self, proposal: SeenProposal | str, to: Addressees) -> SentEnvelope:
        """Say whom a pending proposal is for; everybody sees it, and nobody's rights change.

        Nobody (`()`) takes it back. Raises ProposalSettled, ParticipantNotFound, NotAllowed.
        """
        seen = self._parts.proposal_client.find(proposal)
        return await self._parts.proposal_talk.assign(seen.id, to)

    async def delegate(self, to: str, *, seconds: float, reason: str | None = None) -> SentEnvelope:
        """Let a member decide proposals in our place for a time, at most 31 days.

        It may approve, vote and reject what we may, as long as we may, and no more; not its own proposals and
        not ours. Everybody sees it (`space.proposals.delegations`). Needs capability/grant or moot/delegate.
        """
        return await self._parts.proposal_talk.delegate(to, seconds, reason)

    async def end_delegation(self, *, to: str | None = None, giver: str | None = None) -> SentEnvelope:
        """Take back a delegation of ours `to` somebody, or give back one that a `giver` gave us."""
        if (to is None) == (giver is None):
            raise UsageError("name either the member who decides for you (to), or for whom you do (giver)")
        payload: dict[str, Json] = {"to": to} if giver is None else {"from": giver}
        return await self._parts.proposal_talk.end_delegation(payload)

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

    async def plan(
        self,
        task: str,
        lines: Sequence[Mapping[str, Json]],
        *,
        hours: float | None = None,
        member: str | None = None,
    ) -> LaidOutPlan:
        """Lay out the calls of a task, which people approve once; what is outside of it asks as before.

        A line is `{"to": "files", "tool": "write_file", "arguments": {...}, "count": 2}`: exact arguments,
        and templates and ranges for what varies, as in rules. People may do it for another `member`.
        """
        if self._plan_client is None:
            self._plan_client = PlanClient(self._parts.sender)
            for kind in ("trust/rule", "chat"):
                self._parts.handlers.add(kind, self._plan_client.observe, own=False)
        return await self._plan_client.lay_out(task, lines, hours, member)

    async def settle(
        self, proposal: SeenProposal | str, outcome: Literal["done", "failed"], *, note: str | None = None
    ) -> SentEnvelope:
        """Say what came of an approved call whose outcome nobody knows; raises ProposalSettled, NotAllowed.

        Everybody sees it. An answer of the host that comes later counts more.
        """
        return await self._parts.proposal_client.settle(proposal, outcome, note)

    async def look_up_proposal(self, id: str) -> GatewayProposal | None:
        """What the gateway says about one proposal of anybody, settled or not; None if it remembers none."""
        return await self._parts.proposal_sync.look_up(id, self._session.link.url)

    async def refresh_proposals(self) -> bool:
        """Ask the gateway which proposals are open and what became of those we knew; whether it told.

        After a reconnect this happens by itself.
        """
        return await self._parts.proposal_sync.refresh(self._session.link.url)

    # What was sent before

    async def history(self, since: float = 0.0) -> list[Envelope]:
        """What the gateway still has of what we were sent since then (seconds since 1970), oldest first.

        Its history is bounded and may be turned off. Nothing of it is handled or checked here.
        """
        return (
            await fetch_history(self._parts.options, self._session.link.url, self._parts.sender.me, since)
            or []
        )

    async def journal(self, max_messages: int) -> JournalPast:
        """What was said from the beginning, as far as the gateway's journal tells us, oldest first.

        The latest messages, as many as that or some more; and whether nothing was said before them.
        """
        return await fetch_journal(self._parts.options, self._session.link.url, max_messages)

    async def recall(self, since: float = 0.0) -> list[Envelope]:
        """Learn from the history what was sent before we joined: proposals, chats and reasoning.

        No handler sees it. Returns what was new and passed the checks, oldest first. The gateway is asked
        for what is open, too, however long ago it was proposed: `proposals.known` says whether it told.
        """
        past = self._session.router.replay(await self.history(since))
        await self.refresh_proposals()
        return past

    async def recall_origins(self) -> None:
        """Learn of open proposals that we did not see made where values came from, and what models think.

        Each is looked for once; what is found out later is told to everybody.
        """
        parts = self._parts
        unheard = [seen for seen in parts.proposals.open() if seen.origins is None and seen.is_told]
        if unheard:
            since = min(seen.proposed_at for seen in unheard) - HISTORY_MARGIN_SECONDS
            self._session.router.replay_kinds(await self.history(since), (ORIGINS_KIND, OPINION_KIND))
        for seen in unheard:
            seen.is_told = False

    async def fetch_content(self, sha256: str) -> bytes:
        """A large value that a message names (`_meta["moot/content"]`).

        Raises InvalidRequest if the gateway has none of this hash (any more). What we call and serve has its
        values put back already.
        """
        return await self._parts.sender.content.fetch(sha256)

    async def fetch_params(self, proposal: SeenProposal) -> dict[str, Json]:
        """The params of a proposal with their large values, as its host will get them; raises the same."""
        return await self._parts.sender.content.put_back(proposal.params, is_result=False)
