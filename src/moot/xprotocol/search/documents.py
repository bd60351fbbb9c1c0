"""What can be searched for: a tool, a contract, or anything else with a name and a description."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from moot.protocol.operation import Json

# Parameters of parameters, down to here. Deeper ones hardly ever say what a tool is for.
PARAMETER_DEPTH: Final = 4
# Of one tool: what D-74 allows a contract.
PARAMETERS: Final = 512


@dataclass(frozen=True, slots=True)
class Document:
    """One thing to be found, by its key.

    `signals` are texts about it that it does not say itself (verbs and subjects made from its name, when to
    use it); they find it too, but count less than its own words.
    """

    key: str
    name: str
    source: str = ""
    description: str = ""
    # Names are split like the tool's own, descriptions are prose.
    parameter_names: str = ""
    parameters: str = ""
    signals: tuple[str, ...] = ()

    @staticmethod
    def of_tool(key: str, tool: Json, *, source: str = "", signals: tuple[str, ...] = ()) -> Document:
        """An entry of MCP's `tools/list`, as it came; members of a wrong type count as absent."""
        entry = tool if isinstance(tool, dict) else {}
        names, texts = parameter_texts(entry.get("inputSchema"))
        title, description = _text(entry.get("title")), _text(entry.get("description"))
        return Document(
            key=key,
            name=_text(entry.get("name")) or key,
            source=source,
            description=f"{title}\n{description}" if title else description,
            parameter_names=names,
            parameters=texts,
            signals=signals,
        )


def parameter_texts(schema: Json) -> tuple[str, str]:
    """The names of a JSON Schema's members, and what is said about them; a line each."""
    found = list(_parameters(schema))
    return "\n".join(name for name, _ in found), "\n".join(text for _, text in found if text)


def _parameters(schema: Json) -> Iterator[tuple[str, str]]:
    # Level by level, so that a long tail of nested members cannot push out the outermost ones.
    level, left = [schema], PARAMETERS
    for _ in range(PARAMETER_DEPTH):
        deeper: list[Json] = []
        for each in level:
            members = each.get("properties") if isinstance(each, dict) else None
            for name, member in (members if isinstance(members, dict) else {}).items():
                if not left:
                    return
                left -= 1
                described = member.get("description") if isinstance(member, dict) else None
                yield str(name), _text(described)
                deeper.append(member)
                deeper.append(member.get("items") if isinstance(member, dict) else None)
        level = deeper


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
