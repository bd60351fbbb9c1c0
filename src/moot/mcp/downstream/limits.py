"""Every number of the face that a client can run into, by name."""

from __future__ import annotations

import msgspec


class McpServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long things wait and how much one client may take. All seconds are bounds, not delays."""

    # A call that needs somebody's decision waits this long before the client is told that it is pending.
    # 20 s: a person at a desk decides within that, and clients give up after 60 s (the TypeScript SDK).
    decision_seconds: float = 20.0
    # How often a client that asked for progress hears that a decision is still waited for.
    progress_seconds: float = 5.0
    # Once a person said in a dialog that they would wait: this long, then the call answers "pending".
    patience_seconds: float = 600.0
    # How often one call asks "wait or withdraw?". The SDKs' clients stop after 10 rounds with an error.
    dialog_rounds: int = 5
    # How often a tool may ask one call for input before a handshake client gets an error instead.
    input_rounds: int = 10
    # A question to a handshake client (elicitation, sampling, roots): people think.
    ask_seconds: float = 600.0
    # How often a client should ask for the state of a task.
    task_poll_seconds: float = 2.0
    # Requests of one connection that are being answered at the same time.
    requests: int = 256
    # Open `subscriptions/listen` streams, and subscribed resources of one client.
    listeners: int = 64
    subscriptions: int = 256
    # One message from a client. The gateway takes envelopes of 1 MiB; the SDK's HTTP server takes 4 MiB.
    message_bytes: int = 4 << 20
    # What a client does not read, before the stream is given up.
    unread_bytes: int = 8 << 20
    # Handshake sessions over HTTP, and how long one lives with no request under way.
    sessions: int = 256
    session_seconds: float = 1800.0
    # What a session keeps for a client that lost its stream: events of one stream, streams that ended.
    kept_events: int = 256
    kept_streams: int = 16
    # A silent answer becomes an event stream after this, so that proxies and clients see it live.
    silence_seconds: float = 5.0
    keepalive_seconds: float = 15.0


DEFAULT_LIMITS = McpServerLimits()
