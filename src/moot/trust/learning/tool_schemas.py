"""What the schemas of tools say about their arguments: the `format` of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moot.protocol.operation import Json
from moot.trust.history.proposal_case import Path
from moot.trust.learning.generalisation import CaseKind

# By host and tool.
ToolSchemas = Mapping[tuple[str, str], Json]
NO_SCHEMAS: Final[ToolSchemas] = {}


def formats_of(kind: CaseKind, schemas: ToolSchemas) -> tuple[tuple[Path, str], ...]:
    """The formats of the texts in these proposals, where their tool declares any."""
    if len(kind.to) != 1 or kind.tool is None:
        return ()
    schema = schemas.get((kind.to[0], kind.tool))
    found = ((path, _format_at(schema, path)) for path, type in kind.shape if type == "text")
    return tuple((path, format) for path, format in found if format is not None)


def _format_at(schema: Json, path: Path) -> str | None:
    """Only what stands plainly in `properties`: references and alternatives are not followed."""
    for key in path:
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        schema = properties.get(key) if isinstance(properties, Mapping) else None
    format = schema.get("format") if isinstance(schema, Mapping) else None
    return format if isinstance(format, str) else None
