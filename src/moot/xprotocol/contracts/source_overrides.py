"""What an operator says about one MCP source (XP 3.1): its namespace, which tools, and better words for them.

The structs read straight from the parts of the YAML file that concern translation; whoever loads the file
adds the rest. A value that cannot work raises UsageError when the struct is made, not when a tool comes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from moot.errors import UsageError
from moot.protocol.operation import Json

Inference = Literal["auto", "explicit", "strict"]
Exposed = Literal["tools", "resources", "prompts"]
Quality = Annotated[float, msgspec.Meta(ge=0, le=1)]

# So that `namespace.prompt.NAME.result` stays within a kind's 256 characters for every name that MCP allows.
MAX_NAMESPACE_CHARS: Final = 112
# XP 4.6: warn below the first, publish nothing below the second.
QUALITY_THRESHOLD: Final = 0.40
QUALITY_FLOOR: Final = 0.20

_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


class SemanticOverride(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """XP 4.6: every generated field can be written by hand. The score follows from the description."""

    domain: str | None = None
    intent_verbs: tuple[str, ...] | None = None
    data_subjects: tuple[str, ...] | None = None
    use_when: str | None = None
    do_not_use_when: str | None = None
    related_schemas: tuple[str, ...] | None = None
    example_inputs: tuple[Json, ...] | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be generated (D-63). Examples never are."""
        fields = (f for f in self.__struct_fields__ if f != "example_inputs")
        return all(getattr(self, field) is not None for field in fields)

    def as_json(self) -> dict[str, Json]:
        """The fields that are given, as they came."""
        given = ((field, getattr(self, field)) for field in self.__struct_fields__)
        return {f: list(v) if isinstance(v, tuple) else v for f, v in given if v is not None}


class SchemaOverride(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """XP 3.1 `schema_overrides.<tool>`."""

    description: str | None = None
    # Full, or short to be expanded (D-60).
    required_capability: str | None = None
    semantic: SemanticOverride = SemanticOverride()


NO_OVERRIDE: Final = SchemaOverride()


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `mcp_sources`, as far as translation is concerned."""

    # Unique among all sources; shown in the announce.
    name: str
    # What the kinds of its tools begin with, such as com.acme.files.
    xprotocol_namespace: str
    # `auto` takes a tool's class from its name, `strict` the stricter of name and annotations, `explicit`
    # only what `capabilities` lists (D-61, D-64).
    capability_inference: Inference = "auto"
    # For `explicit`: the only ones that any tool of the source may ask for; short names are written out.
    capabilities: tuple[str, ...] = ()
    # Tools that are exposed; the default is all, an empty list is none.
    tool_allowlist: tuple[str, ...] | None = None
    # By tool: description, required_capability, semantic.
    schema_overrides: Mapping[str, SchemaOverride] = {}
    # Below it a schema is flagged in the announce.
    description_quality_threshold: Quality = QUALITY_THRESHOLD
    # Below it a schema is not published (D-62).
    description_quality_floor: Quality = QUALITY_FLOOR
    # D-78.
    expose: tuple[Exposed, ...] = ("tools", "resources", "prompts")

    def __post_init__(self) -> None:
        if not self.name:
            raise UsageError("mcp_sources: a source needs a name")
        check_namespace(self.xprotocol_namespace)
        for key in ("description_quality_threshold", "description_quality_floor"):
            if not 0 <= getattr(self, key) <= 1:
                raise UsageError(f"{self.name}: {key} has to lie between 0 and 1")
        if self.capability_inference == "explicit" and not self.capabilities:
            raise UsageError("capabilities: is missing: capability_inference explicit needs it")

    @property
    def namespace(self) -> str:
        return self.xprotocol_namespace

    def override(self, tool: str) -> SchemaOverride:
        """What the operator says about this tool, perhaps nothing."""
        return self.schema_overrides.get(tool, NO_OVERRIDE)

    def allows(self, tool: str) -> bool:
        """XP 3.1: whether the allow-list lets this tool through."""
        return self.tool_allowlist is None or tool in self.tool_allowlist

    def is_low(self, score: float) -> bool:
        """D-62: flagged in the announce and warned about; what is withheld is flagged too."""
        return score < max(self.description_quality_threshold, self.description_quality_floor)

    def is_withheld(self, score: float) -> bool:
        """D-62: not published at all."""
        return score < self.description_quality_floor


def check_namespace(namespace: str) -> None:
    """Raises UsageError unless kinds and capabilities can be built on it."""
    if len(namespace) > MAX_NAMESPACE_CHARS or not _NAMESPACE.fullmatch(namespace):
        raise UsageError(
            f"xprotocol_namespace {namespace[:120]!r}: write labels of letters, digits, - and _ with dots "
            f"between, at most {MAX_NAMESPACE_CHARS} characters, as in com.example.files"
        )
    # A tool called `revoke` under `xp.key` would be taken for the protocol's own.
    if namespace.split(".", 1)[0].lower() == "xp":
        raise UsageError(
            f"xprotocol_namespace {namespace!r}: xp belongs to the protocol; take a name of yours"
        )
