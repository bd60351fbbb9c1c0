"""Prints what all tools at hand translate to, as one digest: run in several processes to compare them.

The compiler of grammars has a test like this one of its own; here it runs on a part of the tools only.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from dataclasses import dataclass

from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import Exactness, contract_json, digest, exact_canonical
from moot.xprotocol.contracts.versions import save_registry
from moot.xprotocol.grammar import compile_grammar
from moot.xprotocol.translation.announcement import WrappedSource, announce_payload
from moot.xprotocol.translation.publication import ServerOffer, publish
from moot.xprotocol.translation.translation import CompiledGrammar
from tests.xprotocol.mirroring import mirror
from tests.xprotocol.tool_samples import sources

# Every so many-th real source gets its grammars compiled.
GRAMMAR_EVERY = 100


@dataclass(frozen=True, slots=True)
class Stamp:
    """In the place of a grammar: depends on everything that a grammar depends on, and costs nothing."""

    text: str
    exactness: Exactness = "exact"
    notes: tuple[str, ...] = ()


def stamped(schema: Json) -> CompiledGrammar:
    return Stamp(digest([schema, json.dumps(schema)]))


def main() -> None:
    what, found = sources()
    total = hashlib.sha256()
    counts: Counter[str] = Counter()
    for place, (settings, tools) in enumerate(found):
        compile = compile_grammar if place % GRAMMAR_EVERY == 0 else stamped
        published = publish(ServerOffer(tools=tools), settings, adapter_version="0.1.0", compile=compile)
        source = WrappedSource(settings.name, "stdio", settings.namespace, published)
        announce = announce_payload(display_name="d", adapter_version="0.1.0", mcp_sources=[source])
        shown = mirror(published.contracts, endpoint="xp://example.com", prefix="p_")
        for part in (
            *(json.dumps(contract_json(contract)).encode() for contract in published.contracts),
            *(json.dumps(tool.as_json()).encode() for tool in shown.tools),
            repr((published.refused, published.warnings, published.changes)).encode(),
            exact_canonical(announce),
            save_registry(published.registry),
        ):
            total.update(hashlib.sha256(part).digest())
        counts["tools"] += len({tool["name"] for tool in tools})
        counts["published"] += len(published.contracts)
        counts["withheld"] += sum(notice.code == "withheld" for notice in published.warnings)
        counts["unexplained"] += sum(not entry.message for entry in published.refused)
        counts["not mirrored"] += len(shown.refused)
        counts.update(f"refused: {entry.reason}" for entry in published.refused)
    json.dump({"what": what, "digest": total.hexdigest(), "counts": counts}, sys.stdout)


if __name__ == "__main__":
    main()
