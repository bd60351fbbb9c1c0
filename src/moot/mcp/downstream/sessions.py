"""Handshake sessions over HTTP: what a client said in `initialize` lives under its `Mcp-Session-Id`.

Each request has a stream of its own, the server at large has one ("0", read by GET). A stream that ended is
kept for a client that lost its connection; a session that nobody uses ends by itself.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Collection

from moot.mcp.downstream.handshake import HandshakeSession
from moot.mcp.downstream.mcp_server import McpServer
from moot.mcp.downstream.response_streams import EventStream
from moot.mcp.downstream.rpc import Message, RequestId
from moot.mcp.downstream.running_requests import RunningRequests
from moot.mcp.eras import JsonObject


class HttpSession:
    """One client that shook hands, and its streams."""

    def __init__(self, face: McpServer, *, one_stream: bool = False) -> None:
        self.id = secrets.token_hex(16)
        self.at_large = EventStream("0", face.limits)
        self.in_flight = 0
        self.used = asyncio.get_running_loop().time()
        self._limits = face.limits
        self._one_stream = one_stream
        self._numbers = 0
        # By request while it is being answered; by name afterwards too, for who comes back.
        self._by_request: dict[RequestId, EventStream] = {}
        self._by_name: OrderedDict[str, EventStream] = OrderedDict()
        running = RunningRequests(face.spawn, face.counts, limit=face.limits.requests)
        self.running = running
        self.session = HandshakeSession(face, running, self._send, owes_answers=not one_stream)

    def open(self, id: RequestId) -> EventStream:
        """A stream for the answer to this request."""
        self._numbers += 1
        stream = EventStream(str(self._numbers), self._limits)
        self._by_request[id] = self._by_name[stream.name] = stream
        while len(self._by_name) > self._limits.kept_streams and self._oldest_ended():
            pass
        return stream

    @property
    def busy(self) -> Collection[RequestId]:
        """Requests that have no answer yet."""
        return self._by_request.keys()

    @property
    def at_large_seen(self) -> int:
        """From where on a reader without an event id hears what the server says at large."""
        return self.at_large.taken

    def receive(self, message: Message) -> None:
        self.used = asyncio.get_running_loop().time()
        self.session.receive(message)

    def resumed(self, last_event_id: str) -> tuple[EventStream, int] | None:
        """The stream and the position that an event id names, if everything after it is still here."""
        name, _, number = last_event_id.partition("-")
        stream = self.at_large if name == "0" else self._by_name.get(name)
        if stream is None or not number.isdecimal() or not stream.knows(int(number)):
            return None
        return stream, int(number)

    def close(self) -> None:
        self.session.close()
        for stream in (self.at_large, *self._by_name.values()):
            stream.close()

    def _oldest_ended(self) -> bool:
        for name, stream in self._by_name.items():
            if stream.ended:
                del self._by_name[name]
                return True
        return False

    def _send(self, message: JsonObject, about: RequestId | None) -> None:
        stream = None if about is None or self._one_stream else self._by_request.get(about)
        if stream is None:
            self.at_large.put(message)
            return
        last = "method" not in message
        stream.put(message, last=last)
        if last and about is not None:
            del self._by_request[about]


class HttpSessions:
    """All handshake sessions of one HTTP face."""

    def __init__(self, face: McpServer) -> None:
        self._face = face
        self._sessions: dict[str, HttpSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, *, one_stream: bool = False) -> HttpSession | None:
        """A new session; None when there are too many, even after those that nobody uses are gone."""
        limits = self._face.limits
        self.end_idle()
        if len(self._sessions) >= limits.sessions:
            return None
        session = HttpSession(self._face, one_stream=one_stream)
        self._sessions[session.id] = session
        self._face.counts.sessions = len(self._sessions)
        return session

    def get(self, id: str) -> HttpSession | None:
        return self._sessions.get(id)

    def end(self, session: HttpSession) -> None:
        if self._sessions.pop(session.id, None) is not None:
            session.close()
            self._face.counts.sessions = len(self._sessions)

    def end_idle(self) -> None:
        """End what had no request under way for `session_seconds`."""
        oldest = asyncio.get_running_loop().time() - self._face.limits.session_seconds
        for session in tuple(self._sessions.values()):
            if not session.in_flight and not len(session.running) and session.used < oldest:
                self.end(session)

    def close(self) -> None:
        for session in tuple(self._sessions.values()):
            self.end(session)
