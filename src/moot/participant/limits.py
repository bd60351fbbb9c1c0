"""Every bound of a member, with its number and where it comes from."""

from __future__ import annotations

from typing import Final

import msgspec

from moot.net.websocket_client import DialLimits
from moot.protocol.envelope import EnvelopeLimits


class ParticipantLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one member waits for, keeps and does at once. Seconds are always more than 0."""

    # Coming in: how long a first connection is tried, and how long a welcome may take.
    arrive_seconds: float = 5.0
    welcome_seconds: float = 10.0
    # Coming back: an hour outlasts an upgrade and a lunch; after it somebody should look.
    reconnect_seconds: float = 3_600.0
    backoff_first_seconds: float = 0.25
    # A restarted gateway is found again within seconds; a thousand members are then some 250 tries a second.
    backoff_most_seconds: float = 5.0
    # Leaving: last words (withdrawals, closed streams) and the closing handshake.
    leave_seconds: float = 2.0

    # A request without a timeout of its own; MCP clients commonly give up after a minute.
    request_seconds: float = 60.0
    # A proposal waits for a person: the gateway's own bound (D-28).
    proposal_seconds: float = 86_400.0
    # An echo or a gateway's answer is a round trip; ten seconds are a very bad day.
    confirm_seconds: float = 10.0
    # What a member owes to a control (a status, an acknowledgement of a grant).
    answer_seconds: float = 10.0
    # How long a host may be away before those who asked it are told.
    host_grace_seconds: float = 5.0
    # How long a finished answer waits for a pause to end or a connection to come back.
    held_answer_seconds: float = 300.0

    # Requests of others that run at once, and that wait for their turn; the rest is told to come later.
    handlers: int = 64
    queued_requests: int = 256
    # Requests of our own that wait for an answer; the gateway's default is the same.
    open_requests: int = 1_024

    # What one `envelopes()` or handler queue holds before the oldest is dropped and a Gap told.
    feed_items: int = 1_000
    feed_bytes: int = 16 << 20
    # Envelopes whose sender, kind and parents are remembered for pairing answers with questions.
    lineage: int = 4_096
    # Proposals, chats and reasoning sequences of others that are kept.
    proposals_kept: int = 1_024
    proposals_bytes: int = 32 << 20
    chats_kept: int = 512
    chats_bytes: int = 8 << 20
    contexts_kept: int = 256
    items_per_context: int = 256
    bytes_per_context: int = 256 << 10
    # Senders whose misbehaviour is counted, and misdeeds kept with their circumstances.
    misbehaving_senders: int = 1_024
    misdeeds_kept: int = 256

    # Frames of one stream that nobody has read yet, and of all streams together.
    stream_unread_bytes: int = 1 << 20
    streams_unread_bytes: int = 8 << 20
    # How long a writer waits for a gateway that takes nothing.
    write_seconds: float = 10.0

    # After a reconnect: how far before the loss the gateway's memory is asked, for clocks that differ.
    catch_up_margin_seconds: float = 60.0
    catch_up_bytes: int = 16 << 20
    # Pages of one list (`tools/list` with cursors): a host that never ends its list is broken.
    list_pages: int = 100

    envelope: EnvelopeLimits = EnvelopeLimits()
    dial: DialLimits = DialLimits()


DEFAULT_LIMITS: Final = ParticipantLimits()
