"""Coming into a space."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from moot import __version__
from moot.errors import UsageError
from moot.net.websocket_client import websocket_url
from moot.participant.connection.envelope_sender import Echo
from moot.participant.connection.link import ConnectTarget
from moot.participant.control.controls import Controls
from moot.participant.conversation.transcript import Transcript
from moot.participant.joined_space import JoinedSpace
from moot.participant.limits import DEFAULT_LIMITS, ParticipantLimits
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName


@asynccontextmanager
async def connect(
    url: str,
    space: str = "",
    token: str | None = None,
    *,
    dialect: DialectName = "mew",
    participant: str | None = None,
    limits: ParticipantLimits = DEFAULT_LIMITS,
    controls: Controls | None = None,
    memory: Transcript | None = None,
    reconnect: bool = True,
    passive: bool = False,
    echo: Echo = True,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[JoinedSpace]:
    """Join a space for the length of a block: `async with connect(url, "lab", token) as space:`.

    `url` is the gateway's, http(s) or ws(s), with the path that a proxy gave it; `space` may be left out
    where there is only one. `participant` wishes for a runtime id other than our name (D-19). A connection
    that breaks comes back by itself, unless `reconnect` is false or the gateway says not to. `passive`
    listens and speaks, but answers nothing by itself: for a second connection beside the one that does.
    Without `echo` nothing of our own comes back (D-02): half the traffic of a member that only answers, but
    nothing can be confirmed any more; with "unanswered" all but plain requests comes back, which spares a
    member that asks one wake-up a call. `tls` says whom to believe behind https; by default the system's
    authorities, or those of SSL_CERT_FILE.
    Entering raises NotAdmitted (token, space or name are not right) or Unreachable. Enter and leave it in one
    task.
    """
    if dialect not in DIALECTS:
        raise UsageError(f"a space speaks {', '.join(DIALECTS)}; not {dialect!r}")
    websocket_url(url, "/ws", {})  # says what is wrong with it before anything else happens
    obeying = Controls() if controls is None else controls
    if memory is not None:
        obeying.memory = memory
    joined = JoinedSpace(
        ConnectTarget(url, space, token, dialect, participant, echo, tls),
        limits,
        controls=obeying,
        reconnect=reconnect,
        passive=passive,
        version=__version__,
    )
    await joined.enter()
    try:
        yield joined
    finally:
        await joined.leave()


def token_from(path: str | Path) -> str:
    """The token in a file: one line, nothing else; raises UsageError."""
    file = Path(path)
    try:
        words = file.read_text("utf-8").split()
    except (OSError, UnicodeDecodeError) as fault:
        raise UsageError(f"no token can be read from {file}: {fault}") from None
    if len(words) != 1:
        raise UsageError(f"{file} must hold one token and nothing else; it holds {len(words)} words")
    return words[0]
