"""An input of a space as the log of a cluster has it."""

from __future__ import annotations

import msgspec

from moot.errors import UsageError
from moot.gateway.created_spaces import End
from moot.gateway.hosting.stored_input import StoredInput
from moot.protocol import strict_json
from moot.protocol.operation import Json


class SharedInput(StoredInput):
    """An input as the log has it: a record of the journal before it was applied."""

    space: str = ""
    # Of `create`: the space of the configuration after which it is made while gateways run.
    like: str = ""
    # Of `end`: archived or deleted.
    how: End = "archived"


_decoder = msgspec.json.Decoder(SharedInput)


def read_shared_input(head: bytes) -> SharedInput:
    try:
        return _decoder.decode(head)
    except msgspec.MsgspecError as fault:
        raise UsageError(f"an input of the log that no gateway wrote: {fault}") from None


def encode_shared_input(space: str, input: str, facts: dict[str, Json]) -> bytes:
    return strict_json.encode({"space": space, "t": 0, "in": input} | facts)
