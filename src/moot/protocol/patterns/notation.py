"""Capabilities as strings: MCPx and m3p, read by parts, and what each notation can show (dialects.md 3).

    MCPx   BASE[:METHOD[:CONTEXT]]                        mcp/request:tools/call:read_*
    m3p    PROTOCOL.OPERATION[.METHOD[:CONTEXT]]          mcp.request.tools/call:read_*

Both are read into `Claims`: the MEW kinds they name, a METHOD glob and a CONTEXT glob. A legacy
sender is matched on these; for everyone else `objects_of` writes them as MEW objects, which look at
the payload. A part that is missing, or a last `*`, asks for nothing: any METHOD or CONTEXT, and none
at all (D-46). `**` in its place asks for one, whatever it is.

The way back, `strings_of`, tries a spelling and keeps it only if reading it gives exactly the claims
that were meant, so that no view shows more than the right (D-53).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NoReturn

import msgspec

from moot.errors import InvalidPattern
from moot.protocol.kinds import KINDS, M3P_WORDS, MCPX_WORDS, OPERATION_KINDS
from moot.protocol.operation import CONTEXT_PATHS, Json, Operation
from moot.protocol.patterns.compiler import MAX_STRING_BYTES
from moot.protocol.patterns.globs import glob, includes, is_wild, overlap
from moot.protocol.patterns.pattern import REQUEST_LIMIT, RESPONSE, is_regex

Notation = Literal["mew", "mcpx", "m3p"]

# Table of dialects.md section 3: a one-of that needs more strings than this is not shown at all.
MAX_STRINGS: Final = 64

# In the order in which the table prints them.
_OPERATIONS: Final = ("mcp/request", RESPONSE, "mcp/proposal")
_LIFE_CYCLE: Final = ("mcp/withdraw", "mcp/reject")
_MCPX_CANONICAL: Final[Mapping[str, str]] = {word: kind for kind, word in MCPX_WORDS.items()}
_VERBATIM: Final = "mcpx.ext."


class Claims(msgspec.Struct, frozen=True):
    """What a string capability names: MEW kinds, and globs for METHOD and CONTEXT as in a kind."""

    kinds: tuple[str, ...]
    method: str | None = None
    context: str | None = None

    def match(self, kind: str, claim: Operation) -> bool:
        """Whether a kind as a legacy sender wrote it is covered, by parts (D-46)."""
        if not any(glob(name).matches(kind) for name in self.kinds):
            return False
        return kind not in OPERATION_KINDS or (
            _part_matches(self.method, claim.method) and _part_matches(self.context, claim.context)
        )

    def include(self, kind: str, method: str | None, context: str | None) -> bool:
        """Whether everything that these parts match, these claims match too."""
        return (
            any(includes(glob(name), glob(kind)) for name in self.kinds)
            and _part_includes(self.method, method)
            and _part_includes(self.context, context)
        )

    def reach_beyond_objects(self, kind: str) -> bool:
        """Whether a CONTEXT is asked of methods that have no field for it: only a claim can meet that."""
        asks_the_payload = self.context is not None and kind in OPERATION_KINDS and kind != RESPONSE
        return asks_the_payload and self.method not in CONTEXT_PATHS


def _part_matches(pattern: str | None, claimed: str | None) -> bool:
    return pattern is None or (claimed is not None and glob(pattern).matches(claimed))


def _part_includes(wide: str | None, narrow: str | None) -> bool:
    return wide is None or (narrow is not None and includes(glob(wide), glob(narrow)))


def notation_of(text: str, place: Notation) -> Notation:
    """D-90: which notation a bare string is, from its shape and where it is written."""
    if place == "mew" and (text.startswith("!") or is_regex(text)):
        return "mew"
    if "." in text.partition("/")[0].partition(":")[0]:
        return "m3p"
    if place != "mew" or (text.startswith("mcp/") and ":" in text):
        return "mcpx"
    return "mew"


# Reading.


def read_string(text: str, notation: Literal["mcpx", "m3p"]) -> Claims:
    """The claims of a string capability; raises InvalidPattern naming the part and what to write."""
    if len(text.encode(errors="surrogatepass")) > MAX_STRING_BYTES:
        _refuse(text, f"is longer than {MAX_STRING_BYTES} bytes")
    if not text:
        _refuse(text, "is empty; write * for everything")
    if text.startswith("!") or is_regex(text):
        _refuse(text, 'takes globs only; write an object, as in {"kind": "!chat"}, to negate or use a regex')
    if text in ("*", "**"):
        return Claims(("*",))
    claims = _read_mcpx(text) if notation == "mcpx" else _read_m3p(text)
    for kind in claims.kinds:
        _check_part(text, kind)
    return claims


def _read_mcpx(text: str) -> Claims:
    base, colon, rest = text.partition(":")
    if not base or (colon and not rest):
        _refuse(text, "has an empty part; write mcp/request:METHOD or mcp/request:METHOD:CONTEXT")
    if base in MCPX_WORDS:
        _refuse(text, f"is spelled as in MEW; write {MCPX_WORDS[base]}")
    if base in OPERATION_KINDS:
        return _with_operation(text, (base,), rest)
    if base.startswith("mcp/") and is_wild(base):
        return _with_operation(text, _named(text, base, _OPERATIONS), rest)
    if base.startswith("proposal/") and is_wild(base):
        if colon:
            _refuse(text, "has a METHOD, which only requests, responses and proposals take")
        named = _named(text, base, tuple(MCPX_WORDS[kind] for kind in _LIFE_CYCLE))
        return Claims(tuple(_MCPX_CANONICAL[word] for word in named))
    kind = _MCPX_CANONICAL.get(base, base)
    if colon and kind in KINDS:
        _refuse(text, f"has a METHOD, which {base} does not take; write {base}")
    if is_wild(text) and any(overlap(glob(text), glob(namespace)) for namespace in ("mcp/**", "proposal/**")):
        # `m*` would be other kinds in MCPx than in MEW, and no object could say which.
        _refuse(text, "has a wildcard that reaches into mcp/ or proposal/; write mcp/* or the kinds")
    # A vendor's kind may hold a colon; it has no METHOD (D-93).
    return Claims((text if colon else kind,))


def _read_m3p(text: str) -> Claims:
    protocol, dot, rest = text.partition(".")
    operation, second_dot, third = rest.partition(".")
    if not dot:
        _refuse(text, f"is no m3p capability; write {_m3p_word(text) or 'PROTOCOL.OPERATION'}")
    if not protocol or not operation or (second_dot and not third):
        _refuse(text, "has an empty part; write PROTOCOL.OPERATION or PROTOCOL.OPERATION.METHOD:CONTEXT")
    if is_wild(protocol):
        _refuse(text, "has a wildcard in its protocol; write * for everything, or one as in stream.*")
    if "/" in protocol or ":" in protocol:
        _refuse(text, "has a / or : before its first dot; that is MCPx")
    match protocol:
        case "mcp":
            return _read_m3p_mcp(text, operation, third)
        case "mcpx":
            return _read_m3p_mcpx(text, operation, third)
        case "chat":
            return _read_m3p_chat(text, operation, third)
        case "system":
            # The third level only says more of the same kind (D-50), and members send none of them.
            return Claims((f"system/{operation}",))
    return Claims((f"{protocol}/{rest}",))


def _read_m3p_mcp(text: str, operation: str, third: str) -> Claims:
    kind = f"mcp/{operation}"
    if kind in _LIFE_CYCLE:
        _refuse(text, f"is no m3p kind; write {M3P_WORDS[kind]}")
    if is_wild(operation):
        return _with_operation(text, _named(text, kind, _OPERATIONS), third)
    if kind in OPERATION_KINDS:
        return _with_operation(text, (kind,), third)
    return Claims((text.replace(".", "/", 1),))


def _read_m3p_mcpx(text: str, operation: str, third: str) -> Claims:
    if operation == "ext" and third:
        if is_wild(third):
            _refuse(text, "has a wildcard; after mcpx.ext. stands one kind, written out")
        if third in KINDS or ("/" in third and "." not in third.partition("/")[0]):
            _refuse(text, f"has a spelling of its own; write {_m3p_word(third)}")
        return Claims((third,))
    kind = f"mcp/{operation}"
    if kind not in _LIFE_CYCLE and not is_wild(operation):
        return Claims((text.replace(".", "/", 1),))
    if third and not glob(third).matches("proposal"):
        _refuse(text, f"acts on {third}; write mcpx.{operation}.proposal")
    return Claims(_named(text, kind, _LIFE_CYCLE))


def _read_m3p_chat(text: str, operation: str, third: str) -> Claims:
    if third not in ("", "*"):
        _refuse(text, f"limits the format, which is no right of its own; write chat.{operation}")
    if operation == "message":
        return Claims(("chat",))
    return Claims((*(("chat",) if glob(operation).matches("message") else ()), f"chat/{operation}"))


def _with_operation(text: str, kinds: tuple[str, ...], rest: str) -> Claims:
    """The claims with METHOD[:CONTEXT] read from what follows the kinds."""
    if not rest:
        return Claims(kinds)
    method, colon, context = rest.partition(":")
    if not method or (colon and not context):
        _refuse(text, "has an empty part; leave the colon out, or write * for any METHOD or CONTEXT")
    for part in (method, context):
        _check_part(text, part)
    return Claims(kinds, *(None if part in ("", "*") else part for part in (method, context)))


def _named(text: str, pattern: str, names: Sequence[str]) -> tuple[str, ...]:
    named = tuple(name for name in names if glob(pattern).matches(name))
    if not named:
        _refuse(text, f"names no kind; of these there are {', '.join(names)}")
    return named


def _check_part(text: str, part: str) -> None:
    # As a MEW string it would be a negation or a regular expression: another, wider right.
    if part.startswith("!") or (is_regex(part) and is_wild(part)):
        _refuse(text, f"has the part {part[:80]!r}, which reads otherwise in MEW; write an object instead")


def _refuse(text: str, reason: str) -> NoReturn:
    raise InvalidPattern(f"capability {text[:80]!r} {reason}")


# As MEW objects.


def objects_of(claims: Claims) -> list[dict[str, Json]]:
    """The MEW objects that match, on facts, what the claims match by name; none if no field could tell."""
    return [
        {"kind": kind, **limits}
        for kind in claims.kinds
        for limits in _limits_of(kind, claims.method, claims.context)
    ]


def widest_objects_of(claims: Claims) -> list[dict[str, Json]]:
    """Objects that match at least every message whose claims match and agree with its payload.

    They differ from `objects_of` where a CONTEXT is asked of a method without a field for it: there
    the method is all that the payload is held to.
    """
    return [
        {"kind": kind, **limits}
        for kind in claims.kinds
        for limits in _limits_of(
            kind, claims.method, None if claims.reach_beyond_objects(kind) else claims.context
        )
    ]


def _limits_of(kind: str, method: str | None, context: str | None) -> Iterator[dict[str, Json]]:
    if kind not in OPERATION_KINDS or (method is None and context is None):
        yield {}
    elif kind == RESPONSE:
        parts = (("method", method), ("context", context))
        yield {REQUEST_LIMIT: {name: _as_value(part) for name, part in parts if part is not None}}
    elif method is not None and context is None:
        yield {"payload": {"method": _as_value(method)}}
    elif context is not None:
        for known, paths in CONTEXT_PATHS.items():
            if method is None or glob(method).matches(known):
                for path in paths:
                    yield {"payload": {"method": known, **_nested(path, _as_value(context))}}


def _as_value(part: str) -> str:
    if is_regex(part):
        import re2

        return f"/^{re2.escape(part)}$/"
    return part


def _nested(path: Sequence[str], value: Json) -> dict[str, Json]:
    for key in reversed(path):
        value = {key: value}
    nested: dict[str, Json] = value
    return nested


# As strings.


def strings_of(rights: Iterable[Claims], notation: Literal["mcpx", "m3p"]) -> list[str]:
    """How the notation spells these rights; those it cannot spell exactly are left out."""
    strings: dict[str, None] = {}
    for claims in rights:
        for spelling, meant in _spellings(claims, notation):
            if _reads_as(spelling, notation, meant):
                strings[spelling] = None
    return list(strings) if len(strings) <= MAX_STRINGS else []


def _reads_as(spelling: str, notation: Literal["mcpx", "m3p"], meant: Claims) -> bool:
    try:
        return read_string(spelling, notation) == meant
    except InvalidPattern:
        return False


def _spellings(claims: Claims, notation: Literal["mcpx", "m3p"]) -> Iterator[tuple[str, Claims]]:
    dotted = notation == "m3p"
    kinds = list(claims.kinds)
    for group, word in _groups(kinds, dotted):
        if claims.method is None and claims.context is None:
            yield word, Claims(group)
            kinds = [kind for kind in kinds if kind not in group]
    for kind in kinds:
        if kind not in OPERATION_KINDS:
            word = _m3p_word(kind) if dotted else MCPX_WORDS.get(kind, kind)
            yield word, Claims((kind,))
            continue
        word = f"{kind.replace('/', '.', 1)}." if dotted else f"{kind}:"
        word += claims.method or "*"
        if claims.context is not None:
            word += f":{claims.context}"
        yield word, Claims((kind,), claims.method, claims.context)


def _groups(kinds: list[str], dotted: bool) -> Iterator[tuple[tuple[str, ...], str]]:
    """Kinds that one string names together."""
    if set(_OPERATIONS) <= set(kinds):
        yield _OPERATIONS, "mcp.*" if dotted else "mcp/*"
    if set(kinds) == set(_LIFE_CYCLE):
        yield _LIFE_CYCLE, "mcpx.*" if dotted else "proposal/*"
    if dotted and {"chat", "chat/*"} <= set(kinds):
        yield ("chat", "chat/*"), "chat.*"


def _m3p_word(kind: str) -> str:
    if kind == "*":
        return kind
    namespace, slash, _ = kind.partition("/")
    if kind in M3P_WORDS:
        return M3P_WORDS[kind]
    return kind.replace("/", ".", 1) if slash and "." not in namespace else _VERBATIM + kind
