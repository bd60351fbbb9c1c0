"""The parts of a member, made in the order in which they depend on each other."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class MemberParts:
    """Everything that a member is made of, but for its connection."""

    options: ConnectOptions
    controls: Controls
    tasks: MemberTasks
    runner: HandlerRunner
    sender: EnvelopeSender
    roster: Roster
    roster_fetch: RosterFetch
    owner_lookup: OwnerLookup
    violations: ViolationLog
    correlations: CorrelationIndex
    validator: InboundValidator
    # Proposals and operations
    proposals: ProposalList
    requests: RequestClient
    proposal_client: ProposalClient
    proposal_talk: ProposalTalk
    proposal_sync: ProposalSync
    # Serving
    server: RequestServer
    offers: OwnOffers
    # Conversation
    chats: Chats
    contexts: Contexts
    streams: StreamClient
    # Control
    acks: PendingAcks
    reporter: StatusReporter
    recorder: TranscriptRecorder
    open_work: OpenWork
    # Handlers by kind, and readers of everything.
    handlers: KindHandlers
    readers: Feeds[Envelope]


def make_parts(options: ConnectOptions, controls: Controls) -> MemberParts:
    limits = options.limits
    counts = SendCounts()
    tasks = MemberTasks()
    runner = HandlerRunner(tasks.spawn, counts, message_feed.MAX_FEED_MESSAGES)
    roster = Roster(options.dialect, runner)
    sender = EnvelopeSender(options, counts, roster.names_of)
    violations = ViolationLog(max_senders=MAX_VIOLATING_SENDERS, max_violations=MAX_VIOLATIONS)
    correlations = CorrelationIndex(MAX_KNOWN_ENVELOPES)
    proposals = ProposalList(limits, roster, runner)
    sender.decides_for_others = lambda: bool(proposals.delegations.to_us())
    validator = InboundValidator(correlations, violations, proposals.is_faithful)
    requests = RequestClient(sender, roster, correlations, validator, runner)
    proposal_client = ProposalClient(sender, requests, proposals, tasks.spawn)
    server = RequestServer(sender, validator, proposals, tasks.spawn)
    offers = OwnOffers(server, sender)
    if not options.passive:
        server.use_handler(offers.answer, can_run=offers.can_run)
    contexts = Contexts(validator)
    streams = StreamClient(sender, runner)
    acks = PendingAcks()
    reporter = StatusReporter(sender, controls)
    return MemberParts(
        options=options,
        controls=controls,
        tasks=tasks,
        runner=runner,
        sender=sender,
        roster=roster,
        roster_fetch=RosterFetch(sender, roster, streams.apply_page, tasks.spawn),
        owner_lookup=OwnerLookup(sender),
        violations=violations,
        correlations=correlations,
        validator=validator,
        proposals=proposals,
        requests=requests,
        proposal_client=proposal_client,
        proposal_talk=ProposalTalk(sender, roster),
        proposal_sync=ProposalSync(options, sender, proposals),
        server=server,
        offers=offers,
        chats=Chats(sender),
        contexts=contexts,
        streams=streams,
        acks=acks,
        reporter=reporter,
        recorder=TranscriptRecorder(sender, contexts, controls, reporter, tasks.spawn),
        open_work=OpenWork(sender, requests, server, streams, proposal_client, acks),
        handlers=KindHandlers(runner),
        readers=Feeds(counts),
    )
