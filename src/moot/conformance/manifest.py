"""Every requirement row of the documents, in our own short words, and where it can be shown."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from typing import Final

import msgspec

from moot.conformance.vectors import load_yaml
from moot.errors import UsageError

# The documents in reading order: file, and what a reader calls it.
DOCUMENTS: Final[Mapping[str, str]] = {
    "mew": "MEW v0.4",
    "mcpx": "MCPx v0.1, Decision 002 and m3p",
    "xprotocol": "XProtocol MCP Adapter v0.1",
}

# Where a row can be shown. Each needs a vector or a test.
ROOMS: Final = frozenset(
    {
        "protocol",
        "space",
        "gateway",
        "participant",
        "bridge",
        "xprotocol",
        "adapter",
        "console",
        "trust",
        "docs",
    }
)


class RequirementRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One requirement. `deviates` says why we do otherwise, `waits` why it is not shown yet."""

    level: str
    who: list[str]
    room: str
    words: str
    ruling: str | list[str] | None = None
    deviates: str | None = None
    waits: str | None = None


@functools.cache
def load_document(name: str) -> dict[str, RequirementRow]:
    """The rows of one document by id, in its order."""
    text = (resources.files("moot.conformance") / "requirements" / f"{name}.yaml").read_text("utf-8")
    rows = msgspec.convert(load_yaml(text), dict[str, RequirementRow])
    for id, row in rows.items():
        if row.room not in ROOMS:
            raise UsageError(f"{name}.yaml: {id}: unknown room {row.room!r}")
    return rows


def load_manifest() -> dict[str, RequirementRow]:
    """All rows of all documents by id."""
    return {id: row for name in DOCUMENTS for id, row in load_document(name).items()}
