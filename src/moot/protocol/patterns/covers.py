"""Whether one right contains another (D-16), and whether two have anything in common (D-18).

`covers` says yes only when it can prove it, `overlaps` says no only when it can prove that. Both
look at the patterns, never at messages: structure against structure, one-ofs alternative by
alternative, globs token by token. Regular expressions are compared with literals and with
themselves only.

What a proof promises. Wherever `covers(held, wanted)` holds, a message that `wanted` admits is one
that `held` admits, for these senders:

- MEW senders (no claim), with any payload, addressees and request;
- legacy senders whose kind agrees with the payload and says all of it (METHOD, and the CONTEXT if
  the method has a field for one). A shorter kind can be admitted under an object and refused under
  the string that covers it (D-46 wants a context to be named there), but what is then done is still
  something the string admits under its full name. Likewise a completion whose reference has both a
  name and a URI, of which a kind can only claim the first.

Kinds that contradict their payload reach a right only in `lazy` spaces, and there only through
strings. An object therefore counts as covering a string for kinds that agree, and that is where the
promise ends: who sets a space to `lazy` has chosen to believe kinds. A string with a CONTEXT for
methods that have no field for it is compared as if it had none (`Capability.reach`).
"""

from __future__ import annotations

from collections.abc import Iterable

from moot.protocol.patterns.capability import Capability
from moot.protocol.patterns.globs import includes, overlap
from moot.protocol.patterns.pattern import (
    Equal,
    Exact,
    Fields,
    Leaf,
    Never,
    Node,
    NotText,
    Pattern,
    Regex,
    RequestLimit,
    Text,
    leaves_of,
    searches_within,
)


def covers(held: Capability, wanted: Capability) -> bool:
    """Whether everything that `wanted` admits, `held` certainly admits; unprovable is False."""
    return covered_by(wanted, (held,))


def covered_by(wanted: Capability, held: Iterable[Capability]) -> bool:
    """Whether each pattern that `wanted` stands for is covered by one pattern of one held capability.

    Never by several together: D-16 wants the one right that the giver hands on.
    """
    held = tuple(held)
    if wanted.claims is None:
        patterns = [pattern for capability in held for pattern in capability.patterns]
        return all(any(_pattern_covers(h, w) for h in patterns) for w in wanted.patterns)
    objects = [p for capability in held if capability.claims is None for p in capability.patterns]
    strings = [capability.claims for capability in held if capability.claims is not None]
    claims = wanted.claims
    # A string on a legacy sender is matched by name, so strings are compared with strings by name.
    return all(
        any(string.include(kind, claims.method, claims.context) for string in strings)
        or all(any(_pattern_covers(h, w) for h in objects) for w in wanted.reach if w.source["kind"] == kind)
        for kind in claims.kinds
    )


def overlaps(a: Capability, b: Capability) -> bool:
    """Whether a message can exist that both admit; False only when there certainly is none."""
    return any(_patterns_overlap(one, other) for one in a.reach for other in b.reach)


# Containment.


def _pattern_covers(held: Pattern, wanted: Pattern) -> bool:
    return (
        _covers(held.kind, wanted.kind)
        and _optional_covers(held.payload, wanted.payload)
        and _addressees_cover(held, wanted)
        and _request_covers(held.request, wanted.request)
    )


def _optional_covers(held: Node | None, wanted: Node | None) -> bool:
    return held is None or (wanted is not None and _covers(held, wanted))


def _addressees_cover(held: Pattern, wanted: Pattern) -> bool:
    if held.to is None:
        return True
    return wanted.to is not None and all(any(includes(h, w) for h in held.to) for w in wanted.to)


def _request_covers(held: RequestLimit | None, wanted: RequestLimit | None) -> bool:
    if held is None:
        return True
    return (
        wanted is not None
        and _optional_covers(held.method, wanted.method)
        and _optional_covers(held.context, wanted.context)
    )


def _covers(held: Node, wanted: Node) -> bool:
    if held == wanted:
        return True
    return all(any(_leaf_covers(h, w) for h in leaves_of(held)) for w in leaves_of(wanted))


def _leaf_covers(held: Leaf | Fields, wanted: Leaf | Fields) -> bool:
    if isinstance(wanted, Exact):
        # One value only, so matching it is the proof; a search could run out of visits elsewhere.
        return not _searches(held) and held.matches(wanted.value)
    if isinstance(held, Fields) or isinstance(wanted, Fields):
        return isinstance(held, Fields) and isinstance(wanted, Fields) and _fields_cover(held, wanted)
    if isinstance(wanted, Text) and wanted.glob.literal is not None:
        return held.matches(wanted.glob.literal)
    match held, wanted:
        case (Never(), _) | (_, Never()):
            return False
        case (Equal(), Equal()) | (Regex(), Regex()):
            return held == wanted
        case Exact(), Equal():
            # 1 also stands for 1.0, which is not exactly 1.
            return (wanted.value is None or isinstance(wanted.value, bool)) and held.matches(wanted.value)
        case Text(), Text():
            return includes(held.glob, wanted.glob)
        case NotText(), NotText():
            return includes(wanted.glob, held.glob)
        case NotText(), Text():
            return not overlap(held.glob, wanted.glob)
        case Text(), (NotText() | Regex()):
            return held.glob.lone
    return False


def _searches(leaf: Leaf | Fields) -> bool:
    return isinstance(leaf, Fields) and searches_within(leaf)


def _fields_cover(held: Fields, wanted: Fields) -> bool:
    literal = dict(wanted.literal)
    for name, node in held.literal:
        if name not in literal or not _covers(node, literal[name]):
            return False
    searched = {search.key: search.node for search in wanted.searches}
    for search in held.searches:
        if search.key not in searched:
            return False
        inner = searched[search.key]
        # Searches inside searches share one budget of visits: other ones may use it up earlier.
        if search.node != inner and (searches_within(search.node) or not _covers(search.node, inner)):
            return False
    return True


# Overlap.


def _patterns_overlap(a: Pattern, b: Pattern) -> bool:
    return (
        _overlap(a.kind, b.kind)
        and _optional_overlap(a.payload, b.payload)
        and (a.to is None or b.to is None or any(overlap(one, other) for one in a.to for other in b.to))
        and (
            a.request is None
            or b.request is None
            or (
                _optional_overlap(a.request.method, b.request.method)
                and _optional_overlap(a.request.context, b.request.context)
            )
        )
    )


def _optional_overlap(a: Node | None, b: Node | None) -> bool:
    return a is None or b is None or _overlap(a, b)


def _overlap(a: Node, b: Node) -> bool:
    return any(_leaves_overlap(one, other) for one in leaves_of(a) for other in leaves_of(b))


def _leaves_overlap(a: Leaf | Fields, b: Leaf | Fields) -> bool:
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Exact):
            return _searches(other) or other.matches(one.value)
    if isinstance(a, Fields) and isinstance(b, Fields):
        fields = dict(b.literal)
        return all(_overlap(node, fields[name]) for name, node in a.literal if name in fields)
    if isinstance(a, Fields | Equal) or isinstance(b, Fields | Equal):
        return a == b
    if isinstance(a, Never) or isinstance(b, Never):
        return False
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Text) and one.glob.literal is not None:
            return other.matches(one.glob.literal)
    match a, b:
        case Text(), Text():
            return overlap(a.glob, b.glob)
        case (Text() as one, NotText() as other) | (NotText() as other, Text() as one):
            return not includes(other.glob, one.glob)
    return True
