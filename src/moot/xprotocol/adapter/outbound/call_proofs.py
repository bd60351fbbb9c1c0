"""The proofs that are sent with calls to one source: delegations and grants from its files (D-59)."""

from __future__ import annotations

from pathlib import Path

from moot.errors import InvalidJson, InvalidStatement, MalformedEvent, UsageError
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode, parse
from moot.xprotocol.adapter.config.source_settings import XProtocolSource
from moot.xprotocol.adapter.trust_chain.event_files import read_event_file
from moot.xprotocol.endpoint.endpoint_caller import NO_PROOFS, CallProofs
from moot.xprotocol.events.access_rights import MAX_PROOFS
from moot.xprotocol.events.delegation import read_chain
from moot.xprotocol.events.events import SignedPublic, read
from moot.xprotocol.events.key_statements import read_grant


def read_call_proofs(source: XProtocolSource, key: str) -> CallProofs:
    """Read and verify the files; raises UsageError. `key` is ours: grants for others are refused."""
    proofs: list[Json] = []
    delegation: str | None = None
    if source.delegation_event is not None:
        raw = read_event_file(source.delegation_event)
        try:
            chain = read_chain(raw, holder=key)
        except InvalidStatement as fault:
            raise UsageError(
                f"{source.name}: delegation_event: {source.delegation_event}: {fault.message}"
            ) from None
        delegation = chain.links[-1].id
        proofs += _events(raw, source.delegation_event)
    for file in source.proofs:
        for event in _events(read_event_file(file), file):
            _check_grant(event, file, holder=key, acts_for_another=delegation is not None)
            proofs.append(event)
    if len(proofs) > MAX_PROOFS:
        raise UsageError(f"{source.name}: {len(proofs)} proofs; at most {MAX_PROOFS} can be sent")
    return CallProofs(tuple(proofs), delegation) if proofs else NO_PROOFS


def _events(raw: bytes, file: Path) -> list[Json]:
    try:
        value = parse(raw)
    except InvalidJson as fault:
        raise UsageError(f"{file}: {fault.message}") from None
    return value if isinstance(value, list) else [value]


def _check_grant(event: Json, file: Path, *, holder: str, acts_for_another: bool) -> None:
    try:
        signed = read(event, encode(event))
        if not isinstance(signed, SignedPublic):
            raise InvalidStatement("a directed event")
        granted = read_grant(signed)
    except (MalformedEvent, InvalidStatement) as fault:
        raise UsageError(f"{file}: holds no xp.capability.grant: {fault}") from None
    # With a delegation the grant may be the user's own.
    if granted.grantee != holder and not acts_for_another:
        raise UsageError(f"{file}: is a grant for {granted.grantee}, but this adapter is {holder}")
