"""The limits of a member, and where their numbers come from."""

from __future__ import annotations

from typing import Final

import msgspec

from moot.net.websocket_client import DialLimits
from moot.protocol.envelope import EnvelopeLimits


class ParticipantLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a member waits, how much it keeps, and what it does at once."""

    # How long the first connection is tried, and how long a welcome may take.
    connect_seconds: float = 5.0
    welcome_seconds: float = 10.0
    # How long one gateway of several may take to connect and welcome us before the next is tried. With three,
    # of which one was killed and one hangs, a member is back well within 3 seconds. Doubles after each pass.
    next_gateway_seconds: float = 1.5
    # With several gateways, one that is silent for so long is asked, and given as long to answer: a member of
    # a machine that is gone without a word is at the next one within 7 seconds. For one alone, see `dial`.
    silent_gateway_seconds: float = 2.5
    # How long a lost connection is tried again: an hour outlasts an upgrade.
    reconnect_seconds: float = 3_600.0
    backoff_first_seconds: float = 0.25
    # A restarted gateway is found within seconds; a thousand members make some 250 tries a second.
    backoff_max_seconds: float = 5.0
    # How often a token that may be replaced is looked at; whoever replaces one does it well before its end.
    token_reload_seconds: float = 5.0
    # How long leaving may take: withdrawals, closed streams and the closing handshake.
    leave_seconds: float = 2.0

    # A request without a timeout of its own; MCP clients commonly give up after a minute.
    request_seconds: float = 60.0
    # A proposal waits for a person; the gateway's own limit is the same.
    proposal_seconds: float = 86_400.0
    # How long to wait for an echo or another answer of the gateway, which is one round trip.
    confirm_seconds: float = 10.0
    # How long to wait for a member's answer to a control (a status, an acknowledgement of a grant).
    answer_seconds: float = 10.0
    # How long a host may be away before requests to it fail.
    host_return_seconds: float = 5.0
    # How long a finished answer waits for a pause to end or for a reconnect.
    held_answer_seconds: float = 300.0

    # Requests of others that run at once, and that wait for their turn; more are answered with an error.
    max_running_requests: int = 64
    max_queued_requests: int = 256
    # Requests of our own that wait for an answer; the gateway's default is the same.
    max_open_requests: int = 1_024

    # What the queue of one reader or handler holds before the oldest is dropped.
    max_feed_messages: int = 1_000
    max_feed_bytes: int = 16 << 20
    # Envelopes whose sender, kind and parents are kept, to match answers to requests.
    max_known_envelopes: int = 4_096
    # Proposals, chats and reasoning sequences of others that are kept.
    max_proposals: int = 1_024
    max_proposal_bytes: int = 32 << 20
    max_chats: int = 512
    max_chat_bytes: int = 8 << 20
    max_contexts: int = 256
    max_messages_per_context: int = 256
    max_bytes_per_context: int = 256 << 10
    # Senders whose violations are counted, and violations that are kept.
    max_violating_senders: int = 1_024
    max_violations: int = 256

    # Frames of one stream that nobody has read yet, and of all streams together.
    max_stream_unread_bytes: int = 1 << 20
    max_streams_unread_bytes: int = 8 << 20
    # The values of one call that are kept by the gateway, because no envelope could hold them.
    max_content_bytes: int = 32 << 20
    # How long a writer waits for a gateway that accepts nothing.
    write_seconds: float = 10.0

    # The history that is fetched after a reconnect: from how long before the loss, as clocks differ, and how
    # much.
    history_margin_seconds: float = 60.0
    max_history_bytes: int = 16 << 20
    # Pages of one list (`tools/list` with cursors).
    max_list_pages: int = 100

    envelope: EnvelopeLimits = EnvelopeLimits()
    dial: DialLimits = DialLimits()


DEFAULT_LIMITS: Final = ParticipantLimits()
