"""What a gateway does where MEW leaves it open, learned once: how it lets us in, and answers a mark.

MEW 5.2 has a token in a header. Some gateways wait for a join frame besides, and to others it is an envelope
that is none: it is sent where no welcome comes without it.

MEW 4.1 has an envelope under a false name refused, so sending one draws an answer and changes nothing: that
is our mark. Most gateways name it in their answer, or relay it. Some answer without a name, and the words of
that answer tell it; some say nothing, or end the connection. Those are asked by a WebSocket ping, twice with
a pause between: what a step causes may come a little later than the answer to a ping.
"""

from __future__ import annotations

from typing import Final

import msgspec

from moot.protocol.operation import Json

PREFIX: Final = "conformance-mark-"
# How long a gateway may take to welcome us or to answer a mark for the first time, and how often we look.
LEARN_SECONDS: Final = 3.0
LEARN_POLL_SECONDS: Final = 0.1
# The pause between two pings.
PING_SECONDS: Final = 0.03
NOBODY: Final = "conformance-nobody"


class GatewayTraits(msgspec.Struct):
    """Of one gateway."""

    wants_join_frame: bool = False
    # The error that answers a mark without naming it.
    nameless: Json = None
    by_ping: bool = False

    def marks_in(self, message: Json, waiting: str | None) -> list[str]:
        """The marks that a message is, or is about; `waiting` is the one whose answer is due."""
        named = message.get("correlation_id")
        ids = [message.get("id"), *(named if isinstance(named, list) else [named])]
        found = [id for id in ids if isinstance(id, str) and id.startswith(PREFIX)]
        if not found and waiting is not None and self.nameless is not None and is_nameless_error(message):
            return [waiting] if _code(message) == _code({"payload": self.nameless}) else []
        return found


def is_nameless_error(message: Json) -> bool:
    return message.get("kind") == "system/error" and not message.get("correlation_id")


def _code(message: Json) -> Json:
    payload = message.get("payload")
    return payload.get("error") if isinstance(payload, dict) else payload
