"""Asking others and proposing to them: the words for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from moot.errors import McpError, ToolFailed, UsageError
from moot.participant.calls.outcome import Outcome, SentEnvelope
from moot.participant.calls.request_client import LogHandler, ProgressHandler, RequestClient
from moot.participant.connection.envelope_sender import Addressees
from moot.participant.decisions.own_proposal import Proposal
from moot.participant.decisions.proposal_client import ProposalClient, Way
from moot.participant.decisions.proposal_list import ProposalList, SeenProposal
from moot.participant.limits import ParticipantLimits
from moot.protocol.operation import Json

F = TypeVar("F", bound=Callable[..., Any])
# What a list method calls its list, and what it is called itself.
_LISTS: Final[Mapping[str, str]] = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}


class Asking:
    """What a member can ask of others, or propose to be done."""

    _requests: RequestClient
    _desk: ProposalClient
    limits: ParticipantLimits
    proposals: ProposalList

    def may_request(self, to: Addressees, method: str, params: Mapping[str, Json] | None = None) -> bool:
        """Whether our rights allow this very request."""
        return self._desk.may_request(to, method, params)

    def may_propose(self, to: Addressees, method: str, params: Mapping[str, Json] | None = None) -> bool:
        """Whether our rights allow to propose it."""
        return self._desk.may_propose(to, method, params)

    async def request(
        self,
        to: Addressees,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
        log: LogHandler | None = None,
        about: Addressees = (),
        context: str | None = None,
    ) -> dict[str, Any]:
        """The raw result of an MCP request; raises McpError, TimedOut, MemberLeft, NotAllowed, Refused, …

        `to` is the host; without one everybody is asked and the first answer counts. Cancelling is safe: the
        host is told. `progress` and `log` are called, or awaited, with what the host says on the way.
        """
        answer = await self._requests.ask(
            to,
            method,
            params,
            timeout=timeout,
            progress=progress,
            log=log,
            about=about,
            context=context,
        )
        return answer.result

    async def ask_all(
        self, method: str, params: Mapping[str, Json] | None = None, *, within: float = 2.0
    ) -> dict[str, dict[str, Any] | McpError]:
        """Everybody's answer to a list method, by member, as far as they come within so many seconds."""
        return await self._requests.ask_all(method, params, within)

    async def list_all(self, member: str, what: str, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """All tools, resources, resourceTemplates or prompts of a member; follows its cursors."""
        method = _LISTS.get(what)
        if method is None:
            raise UsageError(f"a member lists {', '.join(_LISTS)}; not {what!r}")
        found: list[dict[str, Any]] = []
        params: dict[str, Json] | None = None
        for _ in range(self.limits.list_pages):
            result = await self.request(member, method, params, timeout=timeout)
            page = result.get(what)
            found += [each for each in page if isinstance(each, dict)] if isinstance(page, list) else []
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str):
                return found
            params = {"cursor": cursor}
        raise UsageError(f"{member} has more than {self.limits.list_pages} pages of {what} (list_pages)")

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
        """Request it if our rights allow this very request, else propose it and wait for what comes of it.

        Raises NotAllowed when neither is allowed, Rejected, Withdrawn, Expired, and all that `request` does.
        `timeout` is for all of it; without one a request has `request_seconds`, a proposal its own bound.
        `wait_for_others` goes on after a rejection (MEW 3.3.2). Cancelling calls it off or withdraws it.
        """
        return await self._desk.perform(
            to,
            method,
            params,
            timeout=timeout,
            progress=progress,
            log=log,
            wait_for_others=wait_for_others,
            propose=propose,
            context=context,
        )

    async def call(
        self,
        member: str,
        tool: str,
        arguments: Mapping[str, Json] | None = None,
        *,
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
        log: LogHandler | None = None,
        wait_for_others: bool = False,
        propose: Way = "auto",
        context: str | None = None,
        meta: Mapping[str, Json] | None = None,
    ) -> Outcome:
        """`perform` a tool; raises ToolFailed when the tool says that it failed."""
        params: dict[str, Json] = {"name": tool, "arguments": dict(arguments or {})}
        if meta is not None:
            params["_meta"] = dict(meta)
        outcome = await self.perform(
            member,
            "tools/call",
            params,
            timeout=timeout,
            progress=progress,
            log=log,
            wait_for_others=wait_for_others,
            propose=propose,
            context=context,
        )
        if outcome.is_error:
            raise ToolFailed(tool, outcome.text, outcome.result)
        return outcome

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
        """Propose an operation on its host `to`; comes back when all have been shown it (MEW 3.2)."""
        return await self._desk.propose(
            to,
            method,
            params,
            timeout=timeout,
            wait_for_others=wait_for_others,
            context=context,
            about=about,
            progress=progress,
            log=log,
        )

    async def approve(
        self,
        proposal: SeenProposal | str,
        *,
        to: Addressees = (),
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
        log: LogHandler | None = None,
        context: str | None = None,
    ) -> Outcome:
        """Do what was proposed, exactly so, and wait for the answer (MEW 3.2.1, D-28).

        Where the space asks for several votes first, see `vote`.
        """
        return await self._desk.fulfil(
            proposal, to=to, timeout=timeout, progress=progress, log=log, context=context
        )

    async def fulfil(
        self,
        proposal: SeenProposal | str,
        *,
        to: Addressees = (),
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
        log: LogHandler | None = None,
        context: str | None = None,
    ) -> Outcome:
        """The same as `approve`: the protocol calls it fulfilling a proposal."""
        return await self.approve(
            proposal, to=to, timeout=timeout, progress=progress, log=log, context=context
        )

    async def reject(
        self, proposal: SeenProposal | str, reason: str = "disagree", *, explanation: str | None = None
    ) -> SentEnvelope:
        """Decline a proposal with a code of REJECT_REASONS or words of your own (MEW 3.3.2)."""
        return await self._desk.reject(proposal, reason, explanation=explanation)

    async def vote(self, proposal: SeenProposal | str) -> SentEnvelope:
        """One vote for it, where the space asks for several before anybody may approve it (D-28).

        Nothing is done by it: when there are enough, somebody approves.
        """
        return await self._desk.vote(proposal)

    def on_proposal(self, handler: F) -> F:
        """Call this for every proposal of others; works as a decorator."""
        self.proposals.on_proposal(handler)
        return handler
