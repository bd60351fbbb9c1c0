"""Every limit of the MCP server that a client can run into."""

from __future__ import annotations

import msgspec


class McpServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the server waits and how much one client may use. All seconds are bounds, not delays."""

    # A call that needs somebody's decision waits this long before the client is told that it is pending.
    # 20 s: a person at a desk decides within that, and clients give up after 60 s (the TypeScript SDK).
    decision_seconds: float = 20.0
    # Where the person at the client may decide, they are asked after this; rules decide faster.
    person_seconds: float = 1.0
    # How often a client that asked for progress is told what is waited for: a decision, a member's list.
    progress_seconds: float = 5.0
    # A call that needs a decision answers "pending" at the latest after this, also while a dialog is open or
    # the approved tool still runs: clients give up after 60 s, and then nobody reads the answer.
    answer_seconds: float = 50.0
    # A call that its client cancels outright is withdrawn after this, unless it is made again: clients that
    # give up and repeat cancel, too, and a person must not be asked twice.
    cancel_seconds: float = 10.0
    # Some clients give up without a word (Python's SDK 1.x; the shortest time limit that it is used with is
    # 4 s). What such a client is told after this it may not have read, so for `doubt_seconds` the same call
    # gets the same outcome once more.
    silent_seconds: float = 4.0
    doubt_seconds: float = 60.0
    # How often one call asks "wait or withdraw?". The SDKs' clients stop after 10 rounds with an error.
    max_dialogs: int = 5
    # How often a tool may request input in one call before a handshake client gets an error instead.
    max_input_rounds: int = 10
    # A request to a handshake client (elicitation, sampling, roots): people think.
    ask_seconds: float = 600.0
    # How often a client should ask for the state of a task.
    task_poll_seconds: float = 2.0
    # Requests of one connection that are being answered at the same time.
    max_requests: int = 256
    # Messages of one batch (2025-03-26).
    max_batch_messages: int = 64
    # Open `subscriptions/listen` streams, and subscribed resources of one client.
    max_listeners: int = 64
    max_subscriptions: int = 256
    # One message from a client: values of 32 MiB, and what JSON and base64 add to them.
    message_bytes: int = 48 << 20
    # Bytes that a client has not read, before its stream is given up: some results of that size.
    unread_bytes: int = 128 << 20
    # Handshake sessions over HTTP, and how long one is kept without a request. Above that number a new one
    # takes the place of the one that has been idle longest.
    max_sessions: int = 256
    session_seconds: float = 1800.0
    # What a session keeps for a client that lost its stream: events of one stream, streams that ended.
    max_kept_events: int = 256
    max_kept_streams: int = 16
    # A response that takes longer becomes an event stream, so that proxies and clients see that it is alive.
    # Not sooner: the client of the Python SDK takes 1 MiB in an event, and any size in a plain answer.
    silence_seconds: float = 15.0
    keepalive_seconds: float = 15.0


DEFAULT_LIMITS = McpServerLimits()
