"""One space as the rest of the gateway sees it: whoever joins, sends, polls or posts comes here.

What they do becomes inputs (`input_order`), which `input_applier` applies.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from moot.errors import OutcomeUnknown, Refused
from moot.gateway.hosting.durability import CarriedOut
from moot.gateway.hosting.input_applier import InputApplier, NewSession
from moot.gateway.hosting.input_order import InputOrder
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.own_connections import invite_ack, tell_own_connections
from moot.gateway.hosting.rights_changes import RightsChanges
from moot.protocol.close_codes import REMOVED
from moot.protocol.envelope import DialectName
from moot.protocol.operation import Json
from moot.space.acts import membership
from moot.space.config import Name, SessionId
from moot.space.config_json import save_config
from moot.space.effects import Disconnect, Reply
from moot.space.members.listing import welcome
from moot.space.members.member import Options

# While more than this of its time is left, another poll of a member is not journaled.
_POLL_NOTED_SHARE: Final = 2 / 3


class SpaceHost:
    """Runs one space. All methods are called from the event loop."""

    def __init__(self, applier: InputApplier, order: InputOrder) -> None:
        self.applier = applier
        self.order = order
        # Every message of a socket comes here.
        self.receive = order.receive
        self.journaled = journaled = applier.journaled
        self.name = journaled.name
        self.space = journaled.space
        self.journal = journaled.journal
        # Values that are too large for an envelope.
        self.content_folder = journaled.folder.parent / "content"
        self.delivery = journaled.delivery
        self.fast_paths = journaled.fast_paths
        self.refusals = applier.refusals
        # What operators and sign-ins change.
        self.rights = RightsChanges(journaled, order)
        # The first record of this run: what came later about members is known without the journal.
        self.opened_at_record = journaled.journal.next_number
        # Files that are members (`output_log`) and are welcomed once more when their participant first posts.
        self.welcome_at_first_post: dict[str, SessionId] = {}

    # Starting and stopping

    def record_state(self, why: str, **facts: Json) -> None:
        """Journal the whole state: what came before is not in the journal, and replay needs it."""
        journaled = self.journaled
        state = self.space.save() | {"config": save_config(self.space.state.config)}
        journaled.step("state", lambda _now, _mint: [], why=why, **facts, state=state)

    async def stop(self) -> None:
        """Everything on disk; the last effects are out."""
        self.refusals.log.flush()
        await self.journaled.stop()

    def end(self, reason: str) -> None:
        """Close its connections; nothing more happens in this space."""
        self.close_connections(REMOVED, reason)
        self.applier.is_ended = True

    def close_connections(self, code: int, reason: str) -> None:
        for session in list(self.delivery.sessions):
            self.end_session(session, reason, code)

    # What members do

    @property
    def received(self) -> int:
        """How many envelopes came, by socket and by HTTP."""
        return self.applier.received + self.fast_paths.accepted

    @property
    def delivered(self) -> int:
        """How many messages that made for others."""
        return self.delivery.delivered + self.fast_paths.delivered

    def find_token_owner(self, token_hash: str) -> Name | None:
        """Whom a token admits now."""
        temporary = self.space.state.temporary_tokens.get(token_hash)
        if temporary is not None and not temporary.admits(self.journaled.clock()):
            return None
        return self.space.find_token_owner(token_hash)

    def note_poll(self, who: str) -> None:
        """A member polls over HTTP, so that it can be given approved calls. Journaled now and then only."""
        member, now = self.space.state.roster.members.get(Name(who)), self.journaled.clock()
        seconds = membership.POLL_PRESENCE_SECONDS
        if member is None or member.present or not seconds:
            return
        if member.polling_until - now > seconds * _POLL_NOTED_SHARE:
            # A poll of a moment ago was noted.
            return
        with suppress(Refused):
            self.order.check_available()
            self.order.submit("poll", {"who": who})

    def leave(self, session: SessionId) -> None:
        """A connection ended."""
        self.delivery.detach(session)
        self.order.leave(session)

    def end_session(self, session: SessionId, reason: str, code: int = REMOVED) -> None:
        """Close a connection that is not let in any more; nothing that it still sends is heard."""
        self.delivery.carry_out([Disconnect(session, code, reason)], self.journaled.clock())
        self.leave(session)

    async def post(self, who: str, dialect: DialectName, body: bytes, options: Options) -> CarriedOut | Reply:
        """Process an envelope from HTTP by the same ladder (D-40); a refusal is returned as the reply.

        Raises OutcomeUnknown when it was accepted but the journal failed before it was on disk.
        """
        self._welcome_output_log(who)
        posting = NewSession(self.order.new_session(), who, dialect, options)
        started = await self.order.post(posting, body)
        if isinstance(started, Reply):
            return started
        # HTTP 200 is an acknowledgement, so it waits for the disk in every mode (D-41).
        try:
            done = await started.done
        except OutcomeUnknown as unknown:
            unknown.details["id"] = started.id
            raise
        await self.journaled.durability.wait_noted(started.noted, done)
        if started.kind == "space/invite" and done.results:
            ack = invite_ack(done.results[0].fields, who, started.id)
            tell_own_connections(self.space, self.delivery, who, ack)
        return done

    def _welcome_output_log(self, who: str) -> None:
        """Tell the file of whoever posts for the first time what the space is like now."""
        session = self.welcome_at_first_post.pop(who, None)
        here = None if session is None else self.space.state.roster.sessions.get(session)
        if here is not None:
            now = self.journaled.clock()
            effects = welcome(self.space.state, here.member, [here.id], now, FreshMint())
            # Not before the disk has what it tells of.
            self.journaled.carry_out(effects, self.journal.next_number - 1, now)

    def connected_at(self, session: SessionId) -> float:
        return self.applier.connected_at.get(session, 0.0)
