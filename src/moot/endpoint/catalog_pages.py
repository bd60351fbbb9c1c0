"""An endpoint's whole catalog by events: `xp.schema.list`, asked and answered page by page.

`xp.schema.describe` finds a few contracts and tells of them; to offer an endpoint's tools to others one needs
the contracts themselves, all of them. The document has them fetched from `schema_url`. An endpoint that is
known by key and relay alone has no such address, and what comes from a web server is not signed. So this kind
of our own asks the key itself. Anybody may ask, as with describe (D-77): discovery comes before rights.

    {"after"?: kind, "kinds"?: [kind, …]}  →  {"contracts": […], "digest": …, "next"?: kind}

Contracts come in the order of their kinds, as many as a page holds; `next` is what `after` of the next page
is. `digest` is the announce's `schemas_digest`: it tells whether the catalog changed between two pages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from moot.errors import SchemaViolation
from moot.protocol import strict_json
from moot.protocol.operation import Json
from moot.xprotocol.announcement import schemas_digest
from moot.xprotocol.contracts import (
    MAX_KIND_CHARS,
    Contract,
    ContractRefused,
    contract_json,
    read_contract,
)

LIST_KIND: Final = "xp.schema.list"
# A third of what an event can carry: a page is one hiccup of a relay, and catalogs rarely need two.
PAGE_BYTES: Final = 256 * 1024
# A contract alone on its page that is larger than this goes without its grammar, or no event could carry it.
MAX_CONTRACT_BYTES: Final = 640 * 1024
# Kinds in one question; `schema_filter` of a source is rarely longer than ten.
MAX_KINDS_ASKED: Final = 512

_Kind = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KIND_CHARS)]
_Kinds = Annotated[tuple[_Kind, ...], msgspec.Meta(max_length=MAX_KINDS_ASKED)]


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of `xp.schema.list`."""

    after: _Kind | None = None
    kinds: _Kinds | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One answer. `unread` are contracts that are none: kind, if it has one, and what is wrong with it."""

    contracts: tuple[Contract, ...]
    unread: tuple[tuple[str, str], ...]
    digest: str
    next: str | None


def read_list_query(payload: Json) -> ListQuery:
    """What is asked; raises SchemaViolation. Members that we do not know are ignored."""
    try:
        return msgspec.convert(payload, ListQuery)
    except msgspec.ValidationError as fault:
        raise SchemaViolation(f"not a payload of {LIST_KIND}: {fault}") from None


def page_of(contracts: Sequence[Contract], query: ListQuery) -> dict[str, Json]:
    """The answer. `contracts` are all that are published, in the order of their kinds."""
    start = 0 if query.after is None else bisect_right(contracts, query.after, key=lambda each: each.kind)
    wanted = None if query.kinds is None else frozenset(query.kinds)
    page: dict[str, Json] = {"contracts": [], "digest": schemas_digest(contracts)}
    room, last = PAGE_BYTES, ""
    for contract in contracts[start:]:
        if wanted is not None and contract.kind not in wanted:
            continue
        shown = contract_json(contract)
        size = len(strict_json.encode(shown)) + 1
        if size > MAX_CONTRACT_BYTES:
            shown = {name: member for name, member in shown.items() if name != "gbnf_grammar"}
            size = len(strict_json.encode(shown)) + 1
        if last and size > room:
            page["next"] = last
            break
        page["contracts"].append(shown)
        room -= size
        last = contract.kind
    return page


def read_page(payload: Json) -> Page:
    """A stranger's answer; raises ContractRefused when it is none. Single contracts that are none do not."""
    if not isinstance(payload, dict) or not isinstance(payload.get("contracts"), list):
        raise ContractRefused("malformed", f"an answer to {LIST_KIND} has to have a list of contracts")
    digest, following = payload.get("digest"), payload.get("next")
    contracts, unread = read_contracts(payload["contracts"])
    return Page(
        contracts,
        unread,
        digest if isinstance(digest, str) else "",
        following if isinstance(following, str) and following else None,
    )


def read_contracts(values: Sequence[Json]) -> tuple[tuple[Contract, ...], tuple[tuple[str, str], ...]]:
    """The contracts of a list, and those entries that are none with the reason."""
    contracts: list[Contract] = []
    unread: list[tuple[str, str]] = []
    for value in values:
        try:
            contracts.append(read_contract(value))
        except ContractRefused as refusal:
            kind = value.get("kind") if isinstance(value, dict) else None
            unread.append((kind[:MAX_KIND_CHARS] if isinstance(kind, str) else "", refusal.message[:200]))
    return tuple(contracts), tuple(unread)
