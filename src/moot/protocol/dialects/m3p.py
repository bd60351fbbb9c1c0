"""The dotted kinds of ADR-m3p (D-47, D-50): PROTOCOL.OPERATION[.METHOD[:CONTEXT]]. The rest is MCPx.

A kind of the table is known by its first two levels; only some take a third. Other kinds are carried
over by writing the first slash as a dot. A kind that this would turn into another one, or into none, is
written whole behind `mcpx.ext.`, and only such a kind, so that no vendor's kind has two spellings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from moot.errors import InvalidEnvelope
from moot.protocol.dialects.mcpx import NO_CLAIM, KindReading, LegacyDialect
from moot.protocol.dialects.mew import check_canonical_kind
from moot.protocol.dialects.translation import CHAT_FORMATS
from moot.protocol.kinds import KINDS, M3P_WORDS, OPERATION_KINDS
from moot.protocol.operation import Operation

VERBATIM: Final = "mcpx.ext."


def _mechanical(kind: str) -> str:
    return kind.replace("/", ".", 1)


def _word(kind: str) -> str:
    return _WORDS.get(kind) or _mechanical(kind)


def _first_two_levels(wire_kind: str) -> str:
    return ".".join(wire_kind.split(".", 2)[:2])


_WORDS: Final[Mapping[str, str]] = {kind: M3P_WORDS.get(kind) or _mechanical(kind) for kind in KINDS}
_BY_FIRST_LEVELS: Final[Mapping[str, str]] = {_first_two_levels(word): kind for kind, word in _WORDS.items()}

# Third levels that add nothing to the kind: those of the words themselves, and the ADR's side table.
_LONGER: Final = frozenset(
    {
        *(word for word in M3P_WORDS.values()),
        *CHAT_FORMATS,
        "system.presence.join",
        "system.presence.leave",
        "system.welcome.participant",
        "system.error.capability",
    }
)


def read_kind(wire_kind: str) -> KindReading:
    """The canonical kind of a dotted kind; raises InvalidEnvelope for what is none."""
    if not wire_kind.startswith(VERBATIM):
        return _read_dotted(wire_kind)
    kind = wire_kind.removeprefix(VERBATIM)
    if not kind:
        raise InvalidEnvelope(f"kind must go on after {VERBATIM}")
    if kind in KINDS or _reads_as(_word(kind), kind):
        raise InvalidEnvelope(f"kind {kind!r} has a spelling of its own: write {_word(kind)!r}")
    check_canonical_kind(kind)
    return KindReading(kind, NO_CLAIM)


def _read_dotted(wire_kind: str) -> KindReading:
    protocol, _, rest = wire_kind.partition(".")
    operation, second_dot, third = rest.partition(".")
    if not protocol or not operation or (second_dot and not third) or "/" in protocol or ":" in protocol:
        raise InvalidEnvelope("kind must be PROTOCOL.OPERATION[.METHOD[:CONTEXT]], no part empty")
    first_levels = f"{protocol}.{operation}"
    kind = _BY_FIRST_LEVELS.get(first_levels)
    if kind is None:
        return _read_unknown(wire_kind, first_levels)
    if not third:
        return KindReading(kind, NO_CLAIM)
    if kind in OPERATION_KINDS:
        method, colon, context = third.partition(":")
        if not method or (colon and not context):
            raise InvalidEnvelope(f"kind must be {first_levels}.METHOD[:CONTEXT], no part empty")
        return KindReading(kind, Operation(method, context or None))
    if wire_kind not in _LONGER:
        raise InvalidEnvelope(f"kind {first_levels!r} has no third level {third[:80]!r}")
    return KindReading(kind, NO_CLAIM)


def _read_unknown(wire_kind: str, first_levels: str) -> KindReading:
    # A reader that stops at the colon, or at the second dot, would take it for a kind of the table.
    before_colon = first_levels.partition(":")[0]
    if before_colon in _BY_FIRST_LEVELS:
        raise InvalidEnvelope(f"kind {before_colon!r} takes no CONTEXT without a METHOD")
    meant = before_colon.replace(".", "/", 1)
    if meant in KINDS:
        raise InvalidEnvelope(f"kind {before_colon!r} is not m3p: write {_WORDS[meant]!r}")
    return KindReading(wire_kind.replace(".", "/", 1), NO_CLAIM)


def _reads_as(wire_kind: str, kind: str) -> bool:
    try:
        return not wire_kind.startswith(VERBATIM) and _read_dotted(wire_kind).kind == kind
    except InvalidEnvelope:
        return False


def spellings(kind: str, operation: Operation) -> Iterator[str]:
    """How m3p can write a kind, best first."""
    word = _word(kind)
    if kind not in OPERATION_KINDS:
        yield word
        yield VERBATIM + kind
    elif operation.method is None:
        yield word
    else:
        if operation.context is not None:
            yield f"{word}.{operation.method}:{operation.context}"
        yield f"{word}.{operation.method}"


M3P: Final = LegacyDialect("m3p", read_kind, spellings)
