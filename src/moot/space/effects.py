"""What a space asks the gateway to do after an input. Effects name sessions and are carried out in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from moot.protocol.envelope import Envelope
from moot.protocol.frames import Frame
from moot.protocol.operation import Json, Operation
from moot.protocol.payloads import GatewayNotice
from moot.space.config import Name, SessionId


class Token(msgspec.Struct, frozen=True):
    """A fresh credential. On replay only the hash is known (D-89)."""

    hash: str
    secret: str | None = None

    def __repr__(self) -> str:  # the secret shows nowhere
        return f"Token(hash={self.hash[:12]}…)"


class Mint(Protocol):
    """Fresh ids and tokens, drawn by the gateway and journaled with the input that used them (D-89)."""

    def id(self) -> str: ...

    def token(self) -> Token: ...


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Send one message to several sessions, encoded in each one's dialect.

    `operation` and `proposer` are what a translation of a response needs to know (dialects.md 2 and 5).
    """

    sessions: Sequence[SessionId]
    message: Envelope | GatewayNotice | Frame
    operation: Operation | None = None
    proposer: str | None = None
    # Meant for these sessions' members alone; otherwise for everybody, except sessions that asked for less.
    private: bool = False
    # The only member that must not get it.
    hidden_from: str | None = None
    # Nobody may see it before its record is on disk: it carries a proposal out, or says what came of it.
    waits_for_disk: bool = False


class Reply(msgspec.Struct, frozen=True):
    """Tell one session something that nobody else receives: its welcome, its error, its invite-ack."""

    session: SessionId
    notice: GatewayNotice
    # Whether polling finds it later; an answer to a question can be asked for again.
    kept: bool = True


class Disconnect(msgspec.Struct, frozen=True):
    """Close a session that the space has already forgotten."""

    session: SessionId
    code: int
    reason: str


class Credential(msgspec.Struct, frozen=True):
    """The tokens that now admit this participant, as hashes; none: its tokens are void."""

    participant: Name
    hashes: tuple[str, ...]


class Mail(msgspec.Struct, frozen=True):
    """MEW 3.6.5: send an invitee its token. The token is here and in the invite-ack, nowhere else."""

    address: str
    participant: Name
    invited_by: Name
    token: Token
    connection_url: str | None


class Result(msgspec.Struct, frozen=True):
    """The outcome of an input without a socket: an HTTP post or an administrator's act (D-40, D-55)."""

    session: SessionId | None
    fields: Mapping[str, Json]


class LeftToOthers(msgspec.Struct, frozen=True):
    """Nobody gets the message: another connection of its sender has the word (`last_word`).

    `late`: it has spoken; nothing was changed, and nobody needs to be told of a refusal.
    """

    late: bool = False


Effect = Deliver | Reply | Disconnect | Credential | Mail | Result | LeftToOthers
