"""The parts of a member, made in the order in which they depend on each other."""

from __future__ import annotations

from typing import Final

from moot.participant.calls.request_client import RequestClient
from moot.participant.connection import message_feed
from moot.participant.connection.connect_options import ConnectOptions
from moot.participant.connection.correlation_index import CorrelationIndex
from moot.participant.connection.envelope_sender import EnvelopeSender, SendCounts
from moot.participant.connection.inbound_check import InboundValidator, ViolationLog
from moot.participant.connection.member_tasks import MemberTasks
from moot.participant.connection.message_feed import Feeds, HandlerRunner, KindHandlers
from moot.participant.connection.owner_lookup import OwnerLookup
from moot.participant.connection.roster import Roster
from moot.participant.connection.roster_fetch import RosterFetch
from moot.participant.control.controls import Controls
from moot.participant.control.open_work import OpenWork
from moot.participant.control.pending_acks import PendingAcks
from moot.participant.control.status_reporter import StatusReporter
from moot.participant.control.transcript_recorder import TranscriptRecorder
from moot.participant.conversation.chat import Chats
from moot.participant.conversation.contexts import Contexts
from moot.participant.conversation.stream_client import StreamClient
from moot.participant.decisions.proposal_client import ProposalClient
from moot.participant.decisions.proposal_list import ProposalList
from moot.participant.decisions.proposal_sync import ProposalSync
from moot.participant.decisions.proposal_talk import ProposalTalk
from moot.participant.serving.own_offers import OwnOffers
from moot.participant.serving.request_server import RequestServer
from moot.protocol.envelope import Envelope

# Envelopes whose sender, kind and parents are kept, to match answers to requests.
MAX_KNOWN_ENVELOPES: Final = 4_096
# Senders whose violations are counted, and violations that are kept.
MAX_VIOLATING_SENDERS: Final = 1_024
MAX_VIOLATIONS: Final = 256


class MemberParts:
    """Everything that a member is made of, but for its connection."""

    def __init__(self, options: ConnectOptions, controls: Controls) -> None:
        self.options = options
        self.controls = controls
        counts = SendCounts()
        self.tasks = tasks = MemberTasks()
        self.runner = runner = HandlerRunner(tasks.spawn, counts, message_feed.MAX_FEED_MESSAGES)
        self.roster = roster = Roster(options.dialect, runner)
        self.sender = sender = EnvelopeSender(options, counts, roster.names_of)
        self.owner_lookup = OwnerLookup(sender)
        self.violations = ViolationLog(max_senders=MAX_VIOLATING_SENDERS, max_violations=MAX_VIOLATIONS)
        self.correlations = CorrelationIndex(MAX_KNOWN_ENVELOPES)
        # Proposals and operations
        self.proposals = proposals = ProposalList(options.limits, roster, runner)
        sender.decides_for_others = lambda: bool(proposals.delegations.to_us())
        self.validator = InboundValidator(self.correlations, self.violations, proposals.is_faithful)
        self.requests = RequestClient(sender, roster, self.correlations, self.validator, runner)
        self.proposal_client = ProposalClient(sender, self.requests, proposals, tasks.spawn)
        self.proposal_talk = ProposalTalk(sender, roster)
        self.proposal_sync = ProposalSync(options, sender, proposals)
        # Serving
        self.server = RequestServer(sender, self.validator, proposals, tasks.spawn)
        self.offers = OwnOffers(self.server, sender)
        if not options.passive:
            self.server.use_handler(self.offers.answer, can_run=self.offers.can_run)
        # Conversation
        self.chats = Chats(sender)
        self.contexts = Contexts(self.validator)
        self.streams = StreamClient(sender, runner)
        self.roster_fetch = RosterFetch(sender, roster, self.streams.apply_page, tasks.spawn)
        # Control
        self.acks = PendingAcks()
        self.reporter = StatusReporter(sender, controls)
        self.recorder = TranscriptRecorder(sender, self.contexts, controls, self.reporter, tasks.spawn)
        self.open_work = OpenWork(
            sender, self.requests, self.server, self.streams, self.proposal_client, self.acks
        )
        # Handlers by kind, and readers of everything.
        self.handlers = KindHandlers(runner)
        self.readers: Feeds[Envelope] = Feeds(counts)
