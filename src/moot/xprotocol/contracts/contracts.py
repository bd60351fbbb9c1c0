"""A schema contract: what an XProtocol endpoint says about one thing that it can be asked (XP 4.1).

The structs are the wire form in the document's own order of members. Beyond the document stand
`gbnf_exactness` and `gbnf_notes` (D-66: whether the grammar says everything that the schema says, and what
it leaves to validation), `source.mcp_prompt` and `subscription` (D-78).
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Final, Literal

import msgspec
import rfc8785

from moot.errors import Refused
from moot.protocol.operation import Json

Exactness = Literal["exact", "superset"]
Refusal = Literal[
    "malformed",  # not a tool, prompt or contract at all
    "invalid_schema",  # no JSON Schema that a validator can use
    "external_reference",
    "recursive",
    "too_large",
    "hidden_text",
    "reserved_kind",
    "kind_taken",
    "duplicate_tool",
    "capability_not_listed",
    "grammar",
    "not_a_tool",  # a contract that no MCP tool can stand for
]

# D-08 bounds kinds like this inside a space; a contract's kind has to pass there too.
MAX_KIND_CHARS: Final = 256
# XP 4.1 shows the first; the adapter document leaves the second to the core, so the text is our own.
ERROR_KIND: Final = "xp.error"
ERROR_SCHEMA_NAME: Final = "xp.error.schema"
FIRST_VERSION: Final = "1.0.0"


class ContractRefused(Refused):
    """8.5: this is not published, or not shown; `reason` is the word and the message the sentence."""

    code = "contract_refused"

    def __init__(self, reason: Refusal, message: str) -> None:
        super().__init__(message, reason=reason)
        self.reason: Refusal = reason


class Semantic(msgspec.Struct, frozen=True, kw_only=True):
    """XP 4.6: what helps an agent to choose."""

    domain: str = ""
    intent_verbs: tuple[str, ...] = ()
    data_subjects: tuple[str, ...] = ()
    use_when: str = ""
    do_not_use_when: str = ""
    related_schemas: tuple[str, ...] = ()
    example_inputs: tuple[Json, ...] | None = None
    description_quality_score: float = 0.0
    # D-63: false only when the operator wrote every one of the fields above.
    auto_generated: bool = False


class ContractSource(msgspec.Struct, frozen=True, kw_only=True):
    """XP 4.1: where a wrapped contract comes from. A native contract has none."""

    type: str
    mcp_server: str | None = None
    mcp_tool: str | None = None
    mcp_prompt: str | None = None
    adapter_version: str | None = None


class ContractResponse(msgspec.Struct, frozen=True):
    """The kind and the schema of the answer."""

    kind: str
    payload: Json = None


class ContractAuth(msgspec.Struct, frozen=True):
    """XP 4.3: the one capability that a caller needs, in full (D-60)."""

    required_capability: str


class ContractSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """D-78: what can be subscribed to, and the kind that updates come as."""

    updated_kind: str
    resources: tuple[Json, ...] = ()
    templates: tuple[Json, ...] = ()


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """One schema contract. Ours have every member; one from elsewhere may have no more than three (XP 4.2).

    The JSON inside is shared, not copied: read it, never change it.
    """

    kind: str
    version: str = FIRST_VERSION
    description: str = ""
    semantic: Semantic | None = None
    source: ContractSource | None = None
    payload: Json
    response: ContractResponse | None = None
    error_response: ContractResponse | None = None
    auth: ContractAuth | None = None
    gbnf_grammar: str | None = None
    gbnf_exactness: Exactness | None = None
    gbnf_notes: tuple[str, ...] | None = None
    subscription: ContractSubscription | None = None


def contract_json(contract: Contract) -> dict[str, Json]:
    """The contract as JSON, members in the document's order, absent ones left out.

    Write this, not the canonical form, to whoever is to read the contract: the order of `properties` is the
    order in which a grammar lets members be written.
    """
    plain: dict[str, Json] = _plain(contract)
    return plain


def read_contract(value: Json) -> Contract:
    """A contract from another endpoint; raises ContractRefused. Says nothing yet about poison (8.5)."""
    try:
        contract = msgspec.convert(value, Contract)
    except msgspec.ValidationError as fault:
        raise ContractRefused("malformed", f"not a contract: {fault}") from None
    if not 1 <= len(contract.kind) <= MAX_KIND_CHARS:
        raise ContractRefused("malformed", f"kind has to have 1 to {MAX_KIND_CHARS} characters")
    if not isinstance(contract.payload, dict | bool):
        raise ContractRefused("malformed", "payload has to be a JSON Schema: an object, or true or false")
    return contract


def exact_canonical(value: Json) -> bytes:
    """The one text of a JSON value: RFC 8785, but whole numbers of any size keep their digits.

    Real schemas hold `"maximum": 9223372036854775807`, for which RFC 8785 has no text of its own. Raises
    ContractRefused for what is not JSON (NaN, lone surrogates, foreign objects).
    """
    try:
        return _canonical(value).encode("utf-8")
    except UnicodeEncodeError:
        raise ContractRefused("malformed", "lone surrogate in a string: no UTF-8 can hold it") from None
    except RecursionError:
        raise ContractRefused("too_large", "nested too deeply to be written") from None
    except ValueError:
        # CVE-2020-10735: Python does not write whole numbers of more than 4,300 digits.
        raise ContractRefused("too_large", "a number with thousands of digits") from None


def digest(value: Json) -> str:
    """SHA-256 of the canonical text, in hex."""
    return hashlib.sha256(exact_canonical(value)).hexdigest()


def _plain(value: Json) -> Json:
    if isinstance(value, msgspec.Struct):
        members = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return {name: _plain(member) for name, member in members if member is not None}
    return list(value) if isinstance(value, tuple) else value


def _canonical(value: Json) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if value is None or isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ContractRefused("malformed", f"{value} is not JSON")
        return rfc8785.dumps(value).decode("ascii")
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise ContractRefused("malformed", "a member whose name is not a string is not JSON")
        # RFC 8785 3.2.3: by UTF-16 units, which differs from code points beyond U+FFFF.
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_canonical(name)}:{_canonical(value[name])}" for name in names) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_canonical, value)) + "]"
    raise ContractRefused("malformed", f"{type(value).__name__} is not JSON")


# Made once: `json.dumps` with an option makes a new encoder for every string.
_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode
