"""An input of a space as its journal holds it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from moot.errors import UsageError
from moot.protocol.envelope import DialectName
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability, read_capability
from moot.space.inputs.passkey_changes import PasskeyInput
from moot.space.members.member import Options, load_capabilities
from moot.space.tokens.temporary_tokens import SignIn, TemporaryToken

ACCEPTED: Final = "accepted"
# Nobody got it, but the space has noted it: another connection of its sender has the word.
LEFT_TO_OTHERS: Final = "left_to_others"


class StoredInput(msgspec.Struct):
    """A record as replay needs it; the envelope keeps its very bytes, so that no digit of it is lost."""

    t: float
    input: str = msgspec.field(name="in")
    out: str = ACCEPTED
    session: str = ""
    who: str = ""
    dialect: DialectName = "mew"
    mint: list[str] = []
    tokens: list[str] = []
    raw: msgspec.Raw = msgspec.Raw()
    # Of a vote: the requests that the gateway made by it.
    made: list[msgspec.Raw] = []
    options: Options = Options()
    able: bool = True
    add: list[Json] = []
    remove: list[Json] = []
    by: str = ""
    keep: bool = False
    # Of `restore`: whether what an administrator had added is gone; earlier versions left it.
    drops_added: bool = False
    # Of `clock`: what it was set to.
    wall: float = 0.0
    # Of a restart: whether the wall clock was behind the space's.
    clock_lost: bool = False
    # Of `gateway_gone`: the connections that it held.
    sessions: list[str] = []
    # Of a reload: the configuration that was taken over; not in records of version 0.1.
    config: dict[str, Any] | None = None
    # Of `state` and `repair`: the whole state at that moment, with its configuration.
    state: msgspec.Raw = msgspec.Raw()
    # Of `repair`: acts that reduce rights, from records that could not stay in the journal.
    acts: list[msgspec.Raw] = []
    # Of `sign_in`: whom a provider of identities knows; of `temporary_token`: one that ends by itself.
    sign_in: SignIn | None = None
    temporary_token: TemporaryToken | None = None
    # Of `passkey_add`, `passkey_remove` and `passkey_sign_in`.
    passkey: PasskeyInput | None = None
    # Of `sign_out`: which sign-ins end, if they began before, and until when that is remembered.
    keys: list[str] = []
    issued_before: float = 0.0
    forget_at: float = 0.0
    # Of `repair`: the number of the snapshot that was made with it; older ones are stale.
    generation: int = 0


_decoder = msgspec.json.Decoder(StoredInput)


def read_input(line: bytes) -> StoredInput:
    """A record as it was written; raises UsageError for a line that no gateway wrote."""
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError as fault:
        raise UsageError(f"no record of a gateway: {fault}") from None


def stored_capabilities(values: list[Json]) -> tuple[Capability, ...]:
    """What an operator's act gives or takes, each with the notation that it was read in.

    Journals of before 0.3 have no notation beside them: those were read as MEW.
    """
    return tuple(
        load_capabilities([value])[0] if isinstance(value, list) else read_capability(value)
        for value in values
    )
