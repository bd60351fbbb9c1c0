"""Signing out of spaces: of those of this gateway, and for another gateway of the cluster."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from moot.errors import MootError
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.other_spaces import AskedSpaces
from moot.protocol.operation import Json


class SignOut(msgspec.Struct, frozen=True):
    """What ends: all that was signed in under these keys until then."""

    keys: tuple[str, ...]
    by: str
    issued_before: float
    keep_seconds: float


async def answer_sign_out(facts: Json, asked: AskedSpaces) -> Json:
    await sign_out_of(asked.hosts, msgspec.convert(facts, SignOut))


async def sign_out_of(hosts: Iterable[SpaceHost], order: SignOut) -> None:
    fault: MootError | None = None
    for host in hosts:
        try:
            await host.rights.sign_out(
                order.keys, order.by, issued_before=order.issued_before, keep_seconds=order.keep_seconds
            )
        except MootError as failed:
            # The other spaces do not wait for this one.
            fault = failed
    if fault is not None:
        raise fault
