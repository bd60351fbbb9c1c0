"""What came of an HTTP post, told to the poster's own connections too (`reference_compat`).

Clients of the reference implementation post over HTTP and read what came of it on their socket, or in their
`output_log`: an error, or the `invite-ack` with the token. Connections whose token carries less than all the
rights of their participant are not told: the token of an invitation would be more than they were given.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping

from moot.gateway.hosting.delivery import Delivery
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.protocol.payloads import GatewayNotice
from moot.space.config import Name
from moot.space.effects import Reply
from moot.space.space import Space


def tell_own_connections(space: Space, delivery: Delivery, who: str, notice: GatewayNotice) -> None:
    """Send a notice to the other connections of whoever posted; polling does not find it again."""
    state = space.state
    member = state.roster.members.get(Name(who))
    if member is None or not state.config.reference_compat:
        return
    held = member.rights.capabilities
    full = [session.id for session in member.sessions.values() if session.rights.capabilities == held]
    delivery.carry_out([Reply(session, notice, kept=False) for session in full], time.time())


def invite_ack(payload: Mapping[str, Json], who: str, about: str) -> GatewayNotice:
    """The acknowledgement that a post was answered with, as an envelope."""
    return GatewayNotice(
        "space/invite-ack", str(uuid.uuid4()), rfc3339(time.time()), payload, to=[who], correlation_id=[about]
    )
