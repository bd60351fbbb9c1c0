"""Asking the gateway whose a name is that several members offer, before we show it.

Every client asks the same gateway, so all of them show a name as the same member's. A gateway that does not
tell leaves it to each client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from moot.errors import Refused
from moot.participant.connection.envelope_sender import EnvelopeSender
from moot.participant.connection.pending_replies import PendingReplies
from moot.protocol.envelope import Envelope
from moot.protocol.operation import Json

KIND: Final = "moot/list-owners"
# What the gateway takes in one question.
_PARTICIPANTS_AT_ONCE: Final = 256

# By participant as asked about, namespace (tools, prompts, uris) and name: the owner, which is somebody else.
TakenNames = Mapping[str, Mapping[str, Mapping[str, str]]]


class OwnerLookup:
    """The questions of one member."""

    def __init__(self, sender: EnvelopeSender) -> None:
        self._sender = sender
        self._replies: PendingReplies[Mapping[str, Json]] = PendingReplies()

    @property
    def is_supported(self) -> bool:
        return KIND in self._sender.extensions

    async def find_taken(self, participants: Iterable[str]) -> TakenNames:
        """The names that these participants announced and that are another's; raises Refused, TimedOut, …"""
        taken: dict[str, Mapping[str, Mapping[str, str]]] = {}
        left = list(participants)
        while left:
            page = await self._ask(left[:_PARTICIPANTS_AT_ONCE])
            for entry in page["owners"]:
                taken[entry["participant"]] = entry["taken"]
            after = page.get("next", [])
            if len(after) >= len(left):
                raise Refused("the gateway's answer about names leads nowhere")
            left = [*after, *left[_PARTICIPANTS_AT_ONCE:]]
        return taken

    async def _ask(self, participants: Sequence[str]) -> Mapping[str, Json]:
        sent = self._sender.send(KIND, {"participants": list(participants)}, check_rights=False)
        what = "the gateway's answer whose these names are"
        return await self._replies.wait(sent.id, self._sender.limits.answer_seconds, what)

    def handle_page(self, envelope: Envelope) -> None:
        for id in envelope.correlation_id:
            self._replies.resolve(id, envelope.payload)

    def fail(self, id: str, fault: Exception) -> bool:
        """Whether this was a question of ours, which fails now."""
        return self._replies.fail(id, fault)

    def fail_all(self, fault: Callable[[], Exception]) -> None:
        self._replies.fail_all(fault)
