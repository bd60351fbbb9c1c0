"""Which era a call uses at a server that speaks both.

A tool that requests input in the middle of its call (elicitation, sampling, roots) often works in one era
only: one written with requests to the client fails where a server may send none, and one that answers
`input_required` fails where that answer does not exist. So a call uses the era of the client that made it,
in which it would have been made without us. What the server's answers show about a tool overrides that, so
that clients of the other era can use the tool too. Nothing is ever called twice for it: a tool that failed
may have done half of its work, so what is learned counts from its next call on.
"""

from __future__ import annotations

import re
from typing import Final

from moot.errors import McpError
from moot.mcp.eras import INPUT_METHODS, Era, JsonObject, is_input_required
from moot.protocol.rpc_codes import INTERNAL_ERROR

# (method, name or URI): what is called.
CallKey = tuple[str, str]

# A server has a few tools that request input; more than this are names that somebody makes up.
_MAX_LEARNED: Final = 1_024
# A text that reports a missing way to the client is a sentence; longer ones are not searched.
_MAX_TEXT_CHARS: Final = 1_000
# What the SDKs' servers say when a tool sends a request in the stateless era: Python's, TypeScript's.
_NO_SERVER_REQUESTS: Final = re.compile(
    r"(?:elicitation/create|sampling/createMessage|roots/list)'"
    r"(?:: this transport context has no back-channel| is not supported by the negotiated protocol version)"
)
# What the Python SDK's server answers in the handshake era to a tool that returned `input_required`.
_INVALID_RESULT: Final = "Handler returned an invalid result"


class EraRoutes:
    """What is known about the calls of one server."""

    def __init__(self) -> None:
        # Tools that the server lists in the handshake era; None: not known.
        self.handshake_tools: frozenset[str] | None = None
        self._need_handshake: set[CallKey] = set()
        self._need_stateless: set[CallKey] = set()

    def use_handshake(self, key: CallKey, *, from_handshake: bool) -> bool:
        """Whether a call belongs to the handshake connection; `from_handshake` is its client's era."""
        if not from_handshake:
            return self.needs_handshake(key)
        if key in self._need_stateless:
            return False
        return key[0] != "tools/call" or self.handshake_tools is None or key[1] in self.handshake_tools

    def needs_handshake(self, key: CallKey) -> bool:
        """Whether a call is known to fail in the stateless era."""
        return key in self._need_handshake

    def needed_era(self, key: CallKey, answer: JsonObject | McpError, used: Era) -> Era | None:
        """The other era, if an answer in the era that was used shows that the call needs it."""
        if used == "stateless":
            return "handshake" if self.learn_from_stateless(key, answer) else None
        needs = isinstance(answer, McpError) and self.learn_from_handshake(key, answer)
        return "stateless" if needs else None

    def learn_from_stateless(self, key: CallKey, answer: JsonObject | McpError) -> bool:
        """Learn from an answer on the stateless connection; True if the call needs the other one."""
        if isinstance(answer, dict) and is_input_required(answer):
            _add(self._need_stateless, key)
            return False
        if not _reports_no_server_requests(answer):
            return False
        _add(self._need_handshake, key)
        return True

    def learn_from_handshake(self, key: CallKey, answer: McpError) -> bool:
        """Learn from an error on the handshake connection; True if the call needs the other one."""
        if answer.code != INTERNAL_ERROR or answer.message != _INVALID_RESULT:
            return False
        _add(self._need_stateless, key)
        return True


def call_key(method: str, params: JsonObject) -> CallKey | None:
    """What a call calls; None for requests that any connection can serve."""
    if method not in INPUT_METHODS:
        return None
    name = params.get("uri" if method == "resources/read" else "name")
    return (method, name) if isinstance(name, str) else None


def _reports_no_server_requests(answer: JsonObject | McpError) -> bool:
    if isinstance(answer, McpError):
        return _NO_SERVER_REQUESTS.search(answer.message[:_MAX_TEXT_CHARS]) is not None
    content = answer.get("content")
    first = content[0] if isinstance(content, list) and content else None
    text = first.get("text") if isinstance(first, dict) else None
    return (
        isinstance(text, str)
        and len(text) <= _MAX_TEXT_CHARS
        and _NO_SERVER_REQUESTS.search(text) is not None
    )


def _add(keys: set[CallKey], key: CallKey) -> None:
    if len(keys) < _MAX_LEARNED:
        keys.add(key)
