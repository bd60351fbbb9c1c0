"""Handshake sessions over HTTP, by `Mcp-Session-Id`.

Each request has a stream of its own; what belongs to no request goes to the server stream ("0", read by
GET). A stream that ended is kept for a client that lost its connection; a session that nobody uses ends.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import KeysView
from typing import Final

from moot.mcp.downstream.handshake import HandshakeSession
from moot.mcp.downstream.mcp_server import McpServer
from moot.mcp.downstream.response_streams import EventStream
from moot.mcp.downstream.rpc import Message, RequestId
from moot.mcp.downstream.running_requests import RunningRequests
from moot.mcp.eras import JsonObject

# How long a handshake session over HTTP is kept without a request.
SESSION_SECONDS: Final = 1800.0
# Streams that ended, which a session keeps for a client that lost one.
MAX_KEPT_STREAMS: Final = 16

# Of the number in an event id; Python reads no number of thousands of digits.
_MAX_DIGITS: Final = 15


class HttpSession:
    """One client after `initialize`, and its streams."""

    def __init__(self, server: McpServer, *, one_stream: bool = False) -> None:
        self.id = secrets.token_hex(16)
        self.server_stream = EventStream("0")
        self.open_responses = 0
        self.used_at = asyncio.get_running_loop().time()
        self._one_stream = one_stream
        self._numbers = 0
        # By request while it is being answered; by name also afterwards, for a client that reconnects.
        self._by_request: dict[RequestId, EventStream] = {}
        self._by_name: OrderedDict[str, EventStream] = OrderedDict()
        running = RunningRequests(server.spawn, server.counts)
        self.running = running
        self.session = HandshakeSession(
            server, running, self._send, always_answers=not one_stream, is_read=self._is_read
        )

    def open(self, *ids: RequestId) -> EventStream:
        """A stream for the answers to these requests; several came in a batch."""
        self._numbers += 1
        stream = EventStream(str(self._numbers))
        self._by_name[stream.name] = stream
        self._by_request |= dict.fromkeys(ids, stream)
        while len(self._by_name) > MAX_KEPT_STREAMS and self._drop_oldest_ended():
            pass
        return stream

    @property
    def pending_ids(self) -> KeysView[RequestId]:
        """Requests that have no answer yet."""
        return self._by_request.keys()

    @property
    def is_idle(self) -> bool:
        """No response is open, and nothing runs."""
        return not self.open_responses and not len(self.running)

    @property
    def is_awaited(self) -> bool:
        """It has a result that its client has not got, perhaps the only word on what was done."""
        return any(stream.is_awaited for stream in self._by_name.values())

    @property
    def server_stream_position(self) -> int:
        """From where on a reader without an event id gets the server stream."""
        return self.server_stream.last_read

    def receive_message(self, message: Message) -> None:
        self.used_at = asyncio.get_running_loop().time()
        self.session.receive_message(message)

    def find_position(self, last_event_id: str) -> tuple[EventStream, int] | None:
        """The stream and the position that an event id names, if everything after it is still here."""
        name, _, number = last_event_id.partition("-")
        stream = self.server_stream if name == "0" else self._by_name.get(name)
        if stream is None or not number.isdecimal() or len(number) > _MAX_DIGITS:
            return None
        if not stream.has_all_after(int(number)):
            return None
        return stream, int(number)

    def close(self) -> None:
        self.session.close()
        for stream in (self.server_stream, *self._by_name.values()):
            stream.close()

    def _drop_oldest_ended(self) -> bool:
        ended = [stream for stream in self._by_name.values() if stream.ended]
        if not ended:
            return False
        # A result that its client has not got may be the only word on what was done.
        oldest = next((stream for stream in ended if not stream.is_awaited), ended[0])
        del self._by_name[oldest.name]
        return True

    def _is_read(self, id: RequestId) -> bool:
        """On one stream for everything, a reader that goes ends the session."""
        stream = self._by_request.get(id)
        return self._one_stream or (stream is not None and stream.is_read)

    def _send(self, message: JsonObject, about: RequestId | None) -> None:
        stream = None if about is None or self._one_stream else self._by_request.get(about)
        if stream is None:
            self.server_stream.put(message)
            return
        if "method" in message or about is None:
            stream.put(message)
            return
        del self._by_request[about]
        self.used_at = asyncio.get_running_loop().time()
        stream.put(message, last=stream not in self._by_request.values())


class HttpSessions:
    """All handshake sessions of one HTTP server."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._sessions: dict[str, HttpSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, *, one_stream: bool = False) -> HttpSession | None:
        """A new session; None when there are too many and all of them are at work.

        Otherwise it takes the place of the one that has been idle longest: many clients never say that they
        are done.
        """
        self.end_idle()
        if len(self._sessions) >= self._server.limits.max_sessions:
            idle = [session for session in self._sessions.values() if session.is_idle]
            if not idle:
                return None
            self.end(min(idle, key=lambda each: (each.is_awaited, each.used_at)))
        session = HttpSession(self._server, one_stream=one_stream)
        self._sessions[session.id] = session
        self._server.counts.sessions = len(self._sessions)
        return session

    def get(self, id: str) -> HttpSession | None:
        return self._sessions.get(id)

    def end(self, session: HttpSession) -> None:
        if self._sessions.pop(session.id, None) is not None:
            session.close()
            self._server.counts.sessions = len(self._sessions)

    def end_idle(self) -> None:
        """End sessions without a request for SESSION_SECONDS."""
        oldest = asyncio.get_running_loop().time() - SESSION_SECONDS
        for session in tuple(self._sessions.values()):
            if session.is_idle and session.used_at < oldest:
                self.end(session)

    def close(self) -> None:
        for session in tuple(self._sessions.values()):
            self.end(session)
