"""An endpoint's whole catalog by events: `xp.schema.list`, page by page.

`xp.schema.describe` finds a few contracts; to offer an endpoint's tools to others, all contracts are needed.
The specification has them fetched from `schema_url`. An endpoint that is known by key and relay alone has no
such address, and what comes from a web server is not signed. So this kind of our own asks the key itself.
Anybody may use it, as with describe (D-77): discovery comes before rights.

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
from moot.xprotocol.contracts.contracts import (
    MAX_KIND_CHARS,
    Contract,
    ContractRefused,
    contract_json,
    read_contract,
)
from moot.xprotocol.translation.announcement import schemas_digest

LIST_KIND: Final = "xp.schema.list"
# A third of what an event can carry; catalogs rarely need two pages.
PAGE_BYTES: Final = 256 * 1024
# A larger contract is sent without its grammar, or no event could carry it.
MAX_CONTRACT_BYTES: Final = 640 * 1024
# Kinds in one query; `schema_filter` of a source is rarely longer than ten.
MAX_KINDS_PER_QUERY: Final = 512

_Kind = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KIND_CHARS)]
_Kinds = Annotated[tuple[_Kind, ...], msgspec.Meta(max_length=MAX_KINDS_PER_QUERY)]


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of `xp.schema.list`."""

    after: _Kind | None = None
    kinds: _Kinds | None = None


@dataclass(frozen=True, slots=True)
class CatalogPage:
    """One page. `invalid` are entries that are not contracts: kind, if any, and what is wrong."""

    contracts: tuple[Contract, ...]
    invalid: tuple[tuple[str, str], ...]
    digest: str
    next: str | None


def read_list_query(payload: Json) -> ListQuery:
    """Parse a query; raises SchemaViolation. Unknown members are ignored."""
    try:
        return msgspec.convert(payload, ListQuery)
    except msgspec.ValidationError as fault:
        raise SchemaViolation(f"not a payload of {LIST_KIND}: {fault}") from None


def make_page(contracts: Sequence[Contract], query: ListQuery) -> dict[str, Json]:
    """The answer to a query. `contracts` are all that are published, in the order of their kinds."""
    start = 0 if query.after is None else bisect_right(contracts, query.after, key=lambda each: each.kind)
    wanted = None if query.kinds is None else frozenset(query.kinds)
    page: dict[str, Json] = {"contracts": [], "digest": schemas_digest(contracts)}
    bytes_left, last = PAGE_BYTES, ""
    for contract in contracts[start:]:
        if wanted is not None and contract.kind not in wanted:
            continue
        encoded = contract_json(contract)
        size = len(strict_json.encode(encoded)) + 1
        if size > MAX_CONTRACT_BYTES:
            encoded = {name: member for name, member in encoded.items() if name != "gbnf_grammar"}
            size = len(strict_json.encode(encoded)) + 1
        if last and size > bytes_left:
            page["next"] = last
            break
        page["contracts"].append(encoded)
        bytes_left -= size
        last = contract.kind
    return page


def read_page(payload: Json) -> CatalogPage:
    """Parse a page; raises ContractRefused. Single invalid contracts do not raise."""
    if not isinstance(payload, dict) or not isinstance(payload.get("contracts"), list):
        raise ContractRefused("malformed", f"an answer to {LIST_KIND} needs a list of contracts")
    digest, next_kind = payload.get("digest"), payload.get("next")
    contracts, invalid = read_contracts(payload["contracts"])
    return CatalogPage(
        contracts,
        invalid,
        digest if isinstance(digest, str) else "",
        next_kind if isinstance(next_kind, str) and next_kind else None,
    )


def read_contracts(values: Sequence[Json]) -> tuple[tuple[Contract, ...], tuple[tuple[str, str], ...]]:
    """The contracts of a list, and the invalid entries with the reason."""
    contracts: list[Contract] = []
    invalid: list[tuple[str, str]] = []
    for value in values:
        try:
            contracts.append(read_contract(value))
        except ContractRefused as refusal:
            kind = value.get("kind") if isinstance(value, dict) else None
            invalid.append((kind[:MAX_KIND_CHARS] if isinstance(kind, str) else "", refusal.message[:200]))
    return tuple(contracts), tuple(invalid)
