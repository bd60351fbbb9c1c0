"""The contracts that an endpoint publishes: found by kind, by tool, or by what somebody wants to do.

`describe` answers `xp.schema.describe` (XP 4.6, D-77), the first thing that an agent sends to an endpoint
that it knows nothing of. Whatever it gives is searched: an intent in its own words, verbs, subjects, domain.
All published contracts are shown, and each says whether the sender may call it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Annotated, Final, Literal

import msgspec

from moot.errors import KindNotFound, SchemaViolation
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import Contract, ContractRefused
from moot.xprotocol.search import MOST_HITS, Document, SearchIndex
from moot.xprotocol.search.documents import parameter_texts
from moot.xprotocol.search.search_terms import name_terms

DESCRIBE_KIND: Final = "xp.schema.describe"

DEFAULT_LIMIT: Final = 10
# Of one field of a query: verbs or subjects, and how long each can be.
MAX_WORDS: Final = 32
MAX_WORD_CHARS: Final = 256
# Texts in an answer are cut there: a hundred matches stay well under what an event can carry.
USE_WHEN_CHARS: Final = 240
DESCRIPTION_CHARS: Final = 1_000
# Where there is more than an intent: so many are compared closely by it, and so many by the other fields.
SHORTLIST: Final = 100
DIGITS: Final = 4

# What the fields of a query count beside each other; those that are not given do not count. An intent is
# whole sentences, the others are guesses at words that the endpoint chose.
INTENT_WEIGHT: Final = 4.0
SUBJECTS_WEIGHT: Final = 2.0
VERBS_WEIGHT: Final = 1.0
DOMAIN_WEIGHT: Final = 1.0

_Word = Annotated[str, msgspec.Meta(max_length=MAX_WORD_CHARS)]
_Words = Annotated[tuple[_Word, ...], msgspec.Meta(max_length=MAX_WORDS)]
_Limit = Annotated[int, msgspec.Meta(ge=1, le=MOST_HITS)]


class DescribeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """D-77: the payload of `xp.schema.describe`; at least one field beside `limit`."""

    # Of a long one the beginning is searched for.
    intent: str | None = None
    domain: _Word | None = None
    data_subjects: _Words | None = None
    intent_verbs: _Words | None = None
    limit: _Limit = DEFAULT_LIMIT


class Match(msgspec.Struct, frozen=True):
    """One entry of the answer. `relevance` is 0 to 1; `use_when` and `description` may be cut."""

    kind: str
    relevance: float
    use_when: str
    description: str
    callable: bool


class Described(msgspec.Struct, frozen=True):
    """D-77: the answer, the best match first."""

    matches: tuple[Match, ...]


@dataclass(frozen=True, slots=True)
class ContractOrigin:
    """What a contract wraps: a tool or a prompt of an MCP server."""

    server: str
    name: str
    what: Literal["tool", "prompt"] = "tool"


def read_query(payload: Json) -> DescribeQuery:
    """The payload of a describe event; raises SchemaViolation. Members unknown to D-77 are ignored."""
    try:
        query = msgspec.convert(payload, DescribeQuery)
    except msgspec.ValidationError as fault:
        raise SchemaViolation(f"not a payload of {DESCRIBE_KIND}: {fault}") from None
    if not any((query.intent, query.domain, query.data_subjects, query.intent_verbs)):
        raise SchemaViolation(
            f"{DESCRIBE_KIND} asks for nothing: give an intent, a domain, data_subjects or intent_verbs"
        )
    return query


def origin_of(contract: Contract) -> ContractOrigin | None:
    """What a contract wraps, unless it is native or of no single tool."""
    source = contract.source
    if source is None:
        return None
    if source.mcp_tool is not None:
        return ContractOrigin(source.mcp_server or "", source.mcp_tool)
    if source.mcp_prompt is not None:
        return ContractOrigin(source.mcp_server or "", source.mcp_prompt, "prompt")
    return None


class ContractCatalog:
    """Contracts that come and go. What it answers depends on those that are there, not on their history."""

    __slots__ = ("_contracts", "_domains", "_index", "_kinds", "_subjects", "_verbs")

    def __init__(self, contracts: Iterable[Contract] = ()) -> None:
        self._contracts: dict[str, Contract] = {}
        self._kinds: dict[ContractOrigin, str] = {}
        self._index = SearchIndex()
        self._verbs: dict[str, set[str]] = {}
        self._subjects: dict[str, set[str]] = {}
        self._domains: dict[str, set[str]] = {}
        for contract in contracts:
            self.add(contract)

    def __len__(self) -> int:
        return len(self._contracts)

    def __contains__(self, kind: str) -> bool:
        return kind in self._contracts

    def contracts(self) -> list[Contract]:
        """All of them, sorted by kind."""
        return [self._contracts[kind] for kind in sorted(self._contracts)]

    def contract(self, kind: str) -> Contract:
        """Raises KindNotFound."""
        try:
            return self._contracts[kind]
        except KeyError:
            raise KindNotFound(f"nothing here is called {kind[:MAX_WORD_CHARS]!r}") from None

    def kind_of(self, origin: ContractOrigin) -> str | None:
        """The kind that a tool or prompt is published as, if it is."""
        return self._kinds.get(origin)

    def origin_of(self, kind: str) -> ContractOrigin | None:
        """The tool or prompt behind a kind; None for a native contract. Raises KindNotFound."""
        return origin_of(self.contract(kind))

    def add(self, contract: Contract) -> None:
        """Take a contract in, in place of an earlier one of the same kind and origin.

        Raises ContractRefused when the kind belongs to another tool, or the tool has another kind: remove
        that first. Raises ResourceLimit when the catalog is full.
        """
        kind, origin = contract.kind, origin_of(contract)
        earlier = self._contracts.get(kind)
        if earlier is not None and origin_of(earlier) != origin:
            raise ContractRefused("kind_taken", f"{kind} is taken by another tool")
        taken = self._kinds.get(origin, kind) if origin is not None else kind
        if taken != kind:
            raise ContractRefused("duplicate_tool", f"this tool is published as {taken} already")
        # First, since it alone can refuse.
        self._index.add(_document(contract))
        if earlier is not None:
            self._unlist(earlier)
        self._contracts[kind] = contract
        if origin is not None:
            self._kinds[origin] = kind
        for table, words in self._tables(contract):
            for word in words:
                table.setdefault(word, set()).add(kind)

    def remove(self, kind: str) -> bool:
        """Whether there was such a contract."""
        contract = self._contracts.pop(kind, None)
        if contract is None:
            return False
        self._unlist(contract)
        origin = origin_of(contract)
        if origin is not None:
            del self._kinds[origin]
        return self._index.remove(kind)

    def describe(self, query: DescribeQuery, callable_by: Callable[[Contract], bool]) -> Described:
        """D-77: the contracts that fit best, sorted by relevance and then by kind.

        `callable_by` says whether the sender may call a contract; it is asked for the matches alone.
        """
        fields = _weights(query)
        fit = self._fit(query)
        fitting = nsmallest(SHORTLIST, fit, key=lambda kind: (-round(fit[kind], DIGITS), kind))
        relevance = {kind: fit[kind] / fields for kind in fitting}
        if query.intent:
            alone = fields == INTENT_WEIGHT
            found = self._index.relevance(
                query.intent, shortlist=query.limit if alone else SHORTLIST, also=fitting
            )
            # Beside other fields the best of an intent counts in full: how much of its wording an endpoint
            # happens to share says nothing about how much the others should count.
            most = 1.0 if alone or not found else max(found.values())
            for kind, value in found.items():
                relevance[kind] = (fit.get(kind, 0.0) + INTENT_WEIGHT * value / most) / fields
        ranked = sorted((-round(value, DIGITS), kind) for kind, value in relevance.items())
        shown = [(kind, -negative) for negative, kind in ranked[: query.limit] if negative]
        return Described(tuple(_match(self._contracts[kind], value, callable_by) for kind, value in shown))

    def _fit(self, query: DescribeQuery) -> dict[str, float]:
        """What verbs, subjects and domain are worth for the contracts that they fit at all."""
        worth: defaultdict[str, float] = defaultdict(float)
        for table, weight, given in (
            (self._subjects, SUBJECTS_WEIGHT, query.data_subjects),
            (self._verbs, VERBS_WEIGHT, query.intent_verbs),
        ):
            asked = sorted({term for word in given or () for term in name_terms(word)})
            for term in asked:
                for kind in table.get(term, ()):
                    worth[kind] += weight / len(asked)
        for kind in self._domains.get(_plain(query.domain or ""), ()):
            worth[kind] += DOMAIN_WEIGHT
        return worth

    def _tables(self, contract: Contract) -> list[tuple[dict[str, set[str]], set[str]]]:
        """Which words lead to a contract by its semantic block, or by its kind if it has none."""
        namespace, _, name = contract.kind.rpartition(".")
        semantic = contract.semantic
        verbs = semantic.intent_verbs if semantic is not None else (name,)
        subjects = semantic.data_subjects if semantic is not None else (name,)
        domain = semantic.domain if semantic is not None else namespace.rpartition(".")[2]
        return [
            (self._verbs, {term for word in verbs for term in name_terms(word)}),
            (self._subjects, {term for word in subjects for term in name_terms(word)}),
            # A client may know the whole namespace, or only what it ends in.
            (self._domains, {_plain(domain), _plain(namespace)} - {""}),
        ]

    def _unlist(self, contract: Contract) -> None:
        for table, words in self._tables(contract):
            for word in words:
                kinds = table[word]
                kinds.discard(contract.kind)
                if not kinds:
                    del table[word]


def _document(contract: Contract) -> Document:
    namespace, _, last = contract.kind.rpartition(".")
    origin, semantic = origin_of(contract), contract.semantic
    names, texts = parameter_texts(contract.payload)
    domain = semantic.domain if semantic is not None else namespace.rpartition(".")[2]
    signals: tuple[str, ...] = ()
    if semantic is not None:
        signals = (" ".join(semantic.intent_verbs), " ".join(semantic.data_subjects), semantic.use_when)
    return Document(
        key=contract.kind,
        name=origin.name if origin is not None else last,
        source=f"{domain} {origin.server}" if origin is not None and origin.server != domain else domain,
        description=contract.description,
        parameter_names=names,
        parameters=texts,
        signals=signals,
    )


def _weights(query: DescribeQuery) -> float:
    given = (
        (query.intent, INTENT_WEIGHT),
        (query.data_subjects, SUBJECTS_WEIGHT),
        (query.intent_verbs, VERBS_WEIGHT),
        (query.domain, DOMAIN_WEIGHT),
    )
    return sum(weight for field, weight in given if field)


def _match(contract: Contract, relevance: float, callable_by: Callable[[Contract], bool]) -> Match:
    use_when = contract.semantic.use_when if contract.semantic is not None else ""
    return Match(
        kind=contract.kind,
        relevance=min(1.0, relevance),
        use_when=_excerpt(use_when, USE_WHEN_CHARS),
        description=_excerpt(contract.description, DESCRIPTION_CHARS),
        callable=callable_by(contract),
    )


def _excerpt(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _plain(domain: str) -> str:
    """`File-System` and `filesystem` are the same domain."""
    return "".join(character for character in domain.casefold() if character.isalnum())
