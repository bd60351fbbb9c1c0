"""A receipt: one JSON document that proves what was proposed, who decided, what ran and what came back.

It carries the very lines of the journal, each with its proof (c2sp.org/tlog-proof) that it is in the log of
the space. Everything in `claims` is read off those lines, so that whoever verifies a receipt believes the
lines alone (`receipt_verify`). A record can be withheld: then its `entry` stands there, the SHA-256 of a line
that has a random salt in it, and the line can be put in its place later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from moot.errors import InvalidRequest, MootError, UsageError
from moot.protocol import strict_json
from moot.protocol.operation import Json

TYPE: Final = "moot/receipt/v1"
MEDIA_TYPE: Final = "application/json"
MAX_RECEIPT_BYTES: Final = 16 << 20
MAX_RECORDS: Final = 256

Role = Literal[
    "proposal", "change", "origins", "vote", "request", "rejection", "withdrawal", "response", "settlement",
    "rule", "grant", "delegation", "sign-in", "passkey", "configuration",
]  # fmt: skip
ROLES: Final[tuple[Role, ...]] = Role.__args__  # type: ignore[attr-defined]
# What a receipt withholds unless it is asked for: what came back, and the whole configuration.
WITHHELD: Final[frozenset[Role]] = frozenset({"response", "configuration"})

_Hex = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class ReceiptFault(UsageError):
    """A receipt that is none, or whose parts do not belong together."""


class _Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something that one record says: its number, who sent it by the gateway's own word, and when."""

    record: int
    by: str
    at: str


class CallClaim(_Claim, frozen=True, kw_only=True):
    """A call that was proposed, or made. `canonical` is {method, params} by RFC 8785 and `sha256` its hash;
    both are left out where a number has more digits than that form can hold. `fingerprint` is the gateway's
    own hash, which a passkey signs. Where fields are withheld there are no hashes."""

    id: str
    to: list[str]
    method: str
    fingerprint: _Hex = ""
    canonical: str = ""
    sha256: str = ""


class PasskeyClaim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The passkey that signed a decision over the call's fingerprint; the signature was checked."""

    credential: str
    public_key: str
    rp_id: str
    origin: str


class DecisionClaim(_Claim, frozen=True, kw_only=True):
    """`rule`: that made it in this member's name."""

    id: str
    how: Literal["approved", "called", "voted", "rejected", "withdrew", "settled", "gave input"]
    reason: str = ""
    rule: str = ""
    passkey: PasskeyClaim | None = None


class AnswerClaim(_Claim, frozen=True, kw_only=True):
    """What came back; `sha256` is the hash of result or error by RFC 8785."""

    id: str
    outcome: Literal["done", "failed", "unknown", "asks for input"]
    sha256: str = ""


class OriginsClaim(_Claim, frozen=True, kw_only=True):
    """Where the values of the call came from, as this member found out: an origin for each argument."""

    arguments: dict[str, str]


class RuleClaim(_Claim, frozen=True, kw_only=True):
    name: str
    sha256: str = ""


class GrantClaim(_Claim, frozen=True, kw_only=True):
    """A right that was given at run time: `by` gave it `to` somebody."""

    id: str
    to: str
    capabilities: list[Any]


class DelegationClaim(_Claim, frozen=True, kw_only=True):
    """`by` let somebody decide in their place."""

    to: str


class IdentityClaim(_Claim, frozen=True, kw_only=True):
    """Whom a provider of identities knows as this member."""

    issuer: str
    subject: str


class ConfigurationClaim(_Claim, frozen=True, kw_only=True):
    sha256: str


class Claims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the records that are shown say. `state` is that of the proposal as far as they tell."""

    state: str
    proposed: CallClaim | None = None
    changed: CallClaim | None = None
    decisions: list[DecisionClaim] = []
    ran: CallClaim | None = None
    answers: list[AnswerClaim] = []
    origins: list[OriginsClaim] = []
    rules: list[RuleClaim] = []
    grants: list[GrantClaim] = []
    delegations: list[DelegationClaim] = []
    identities: list[IdentityClaim] = []
    configuration: ConfigurationClaim | None = None


class ReceiptRecord(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One record of the journal: its `line` without seal and newline, or if it is withheld, `entry`, the
    SHA-256 of that in hex. What `role` says of a withheld one is not proven. Where fields of it are withheld,
    there are both, and in `signed` a note of the log's key that they belong together."""

    number: Annotated[int, msgspec.Meta(ge=1)]
    role: Role
    line: str = ""
    entry: str = ""
    signed: str = ""
    proof: str


class Receipt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`about` is the id of the proposal, or of a call that was made without one."""

    type: Literal["moot/receipt/v1"] = msgspec.field(name="receipt")
    space: str
    about: str
    claims: Claims
    records: Annotated[list[ReceiptRecord], msgspec.Meta(min_length=1, max_length=MAX_RECORDS)]

    def as_bytes(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def parse_receipt(raw: bytes) -> Receipt:
    """Read a receipt without judging it; raises ReceiptFault if it is none."""
    if len(raw) > MAX_RECEIPT_BYTES:
        raise ReceiptFault(f"a receipt has at most {MAX_RECEIPT_BYTES >> 20} MiB")
    try:
        # A second member of the same name would be read by one program and not by the other.
        strict_json.parse_any_depth(raw)
        return msgspec.json.decode(raw, type=Receipt)
    except msgspec.MsgspecError as fault:
        raise ReceiptFault(f"this is no receipt: {fault}") from None
    except MootError as fault:
        raise ReceiptFault(f"this is no receipt: {fault}") from None


def receipt_schema() -> dict[str, Json]:
    """The JSON Schema of a receipt."""
    schema = msgspec.json.schema(Receipt)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://moot.example/schemas/receipt-v1.json",
        "title": "Receipt of a decided proposal or a call",
    } | schema


def read_roles(words: Iterable[str], *, allowed: Sequence[Role] = ROLES) -> frozenset[Role]:
    """The roles that somebody named; raises InvalidRequest."""
    found = {word for each in words for word in each.split(",") if word}
    if not found <= set(allowed):
        raise InvalidRequest(
            f"unknown: {', '.join(sorted(found - set(allowed)))[:100]}; choose among {', '.join(allowed)}"
        )
    return frozenset(role for role in allowed if role in found)
