"""What a member has under way, and how it ends: our requests, those we serve, our streams and proposals."""

from __future__ import annotations

from collections.abc import Callable

from moot.errors import Interrupted
from moot.participant.calls.request_client import RequestClient
from moot.participant.connection.envelope_sender import EnvelopeSender
from moot.participant.control.pending_acks import PendingAcks
from moot.participant.conversation.stream_client import StreamClient
from moot.participant.decisions.proposal_client import ProposalClient
from moot.participant.serving.request_server import RequestServer


class OpenWork:
    """Ends everything that is under way, in the ways that a connection or a member can end."""

    def __init__(
        self,
        sender: EnvelopeSender,
        requests: RequestClient,
        server: RequestServer,
        streams: StreamClient,
        proposals: ProposalClient,
        acks: PendingAcks,
    ) -> None:
        self._sender = sender
        self._requests = requests
        self._server = server
        self._streams = streams
        self._proposals = proposals
        self._acks = acks

    def close(self) -> None:
        """Close our streams and withdraw our proposals unless they stay, if anything can still be sent."""
        self._streams.close_owned()
        for proposal in self._proposals.own():
            if not proposal.stays_open:
                self._proposals.withdraw_quietly(proposal)

    def interrupt(self, reason: str) -> None:
        """MEW 3.9.9: end what we wait for, what we do for others, our streams and proposals."""
        self._requests.fail_all(lambda: Interrupted(reason))
        self._server.interrupt(reason)
        self.close()

    def fail_all(self, fault: Callable[[], Exception], *, keep_requests: bool = False) -> None:
        """The connection is gone: no answer will come to what we sent, but to requests in a cluster."""
        self._sender.detach(fault)
        if not keep_requests:
            self._requests.fail_all(fault)
        self._acks.fail_all(fault)
        self._streams.fail_all(fault)
