"""Joining a space."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from moot.errors import NotAdmitted, Unreachable
from moot.net.outbound import OpenSocket
from moot.participant.connection.connect_options import ConnectOptions, Echo, Hears
from moot.participant.control.controls import Controls
from moot.participant.conversation.transcript import Transcript
from moot.participant.joined_space import JoinedSpace
from moot.participant.limits import DEFAULT_LIMITS, ParticipantLimits
from moot.participant.member_parts import MemberParts
from moot.participant.member_session import MemberSession
from moot.protocol.envelope import DialectName


@asynccontextmanager
async def connect(
    url: str,
    space: str = "",
    token: str | Callable[[], str] | None = None,
    *,
    dialect: DialectName = "mew",
    participant: str | None = None,
    name: str | None = None,
    limits: ParticipantLimits = DEFAULT_LIMITS,
    controls: Controls | None = None,
    transcript: Transcript | None = None,
    reconnect: bool = True,
    passive: bool = False,
    echo: Echo = True,
    hears: Hears = "all",
    tls: ssl.SSLContext | None = None,
    open_socket: OpenSocket | None = None,
) -> AsyncIterator[JoinedSpace]:
    """Join a space for the length of a block: `async with connect(url, "lab", token) as space:`.

    `url` is the gateway's, http(s) or ws(s), with the path that a proxy gave it; `space` may be left out
    where there is only one. `token` may be a function that returns the current one, for tokens that end:
    `JoinedSpace.renew` tells the gateway of a newer one before that. What it raises ends the connection. For
    a cluster, `url` has the addresses of several gateways, separated by commas: when one does not answer, or
    a connection drops, the next one is tried at once. `participant` asks for a runtime id other than our
    name. `name` is our name, for a gateway that does not know whose token it is; the reference
    implementation's makes one up otherwise.
    A connection that breaks is opened again, unless `reconnect` is false or the gateway says not to.
    `passive` sends and receives, but answers nothing by itself: for a second connection beside the one that
    does. Of several that do, one that does not offer what is asked for leaves the answer to the others.
    Without `echo` our own messages do not come back: half the traffic of a member that only answers, but
    nothing can be confirmed any more. With "unanswered" everything but plain requests comes back, which saves
    a member that calls others one wake-up per call. `hears="mine"`: of the chats and calls of others only
    what is addressed to us or answers us, and everything about proposals, for one of very many connections;
    such members are not told of one another, and tell of a newer token by `renew` alone. `tls` says which
    certificates to trust for https; by default the system's authorities, or those of SSL_CERT_FILE.
    `open_socket` connects to the gateway in our place, for a member that lives in the gateway's own process.
    Entering the block raises NotAdmitted (token, space or name are not right) or Unreachable. Enter and leave
    it in one task.
    """
    options = ConnectOptions(
        url,
        space,
        token,
        dialect=dialect,
        participant=participant,
        name=name,
        limits=limits,
        reconnect=reconnect,
        passive=passive,
        echo=echo,
        hears=hears,
        tls=tls,
        open_socket=open_socket,
    )
    used_controls = Controls() if controls is None else controls
    if transcript is not None:
        used_controls.transcript = transcript
    parts = MemberParts(options, used_controls)
    session = MemberSession(parts)
    try:
        await session.join()
    except (Unreachable, NotAdmitted) as fault:
        # Its message says what to do; how we got there is no help to whoever reads it.
        raise fault.with_traceback(None) from None
    try:
        yield JoinedSpace(parts, session)
    finally:
        await session.leave()
