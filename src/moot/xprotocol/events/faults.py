"""Faults as XProtocol and as MCP know them, and the way from each to the other (XP 5.3, D-69)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from moot.xprotocol.contracts.contracts import ContractRefused

# Those of the adapter document, then INTERNAL and UPSTREAM_ERROR of our profile.
FaultCode = Literal[
    "AUTHORIZATION_INSUFFICIENT",
    "SCHEMA_VIOLATION",
    "EXPIRED",
    "REVOKED",
    "NOT_FOUND",
    "RATE_LIMITED",
    "ENDPOINT_UNAVAILABLE",
    "INTERNAL",
    "UPSTREAM_ERROR",
]

# JSON-RPC 2.0, as MCP uses it.

# XP 5.3: the words are the document's, since clients may look for them.
MCP_ERRORS: Final[Mapping[FaultCode, tuple[int, str]]] = {
    "AUTHORIZATION_INSUFFICIENT": (INVALID_REQUEST, "Insufficient capability for this operation"),
    "SCHEMA_VIOLATION": (INVALID_PARAMS, "Request payload does not conform to schema"),
    "EXPIRED": (INVALID_REQUEST, "Event has expired"),
    "REVOKED": (INVALID_REQUEST, "Sender key has been revoked"),
    "NOT_FOUND": (INVALID_REQUEST, "Resource or schema not found"),
    "RATE_LIMITED": (INVALID_REQUEST, "Rate limit exceeded"),
    "ENDPOINT_UNAVAILABLE": (INTERNAL_ERROR, "XProtocol endpoint unavailable"),
    "INTERNAL": (INTERNAL_ERROR, "Internal error"),
}
# D-69: what a wrapped server answers, seen from XProtocol.
_FAULT_OF_RPC: Final[Mapping[int, FaultCode]] = {
    INVALID_PARAMS: "SCHEMA_VIOLATION",
    METHOD_NOT_FOUND: "NOT_FOUND",
}

# Long enough for a stack of causes, short enough for a log line.
MAX_MESSAGE_CHARS: Final = 1_000

_SECRET_SHAPES: Final = (
    # user:password@ in an address
    (re.compile(r"(?<=://)[^/\s@]+@"), ""),
    (re.compile(r"(?i)\b(bearer|basic|token)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 [hidden]"),
    (
        re.compile(
            r"(?i)\b((?:access|api|auth|client|private|refresh|secret|session)?[_-]?"
            r"(?:key|token|secret|password|passwd|credential|authorization|cookie))"
            r"([\"']?\s*[=:]\s*[\"']?)[^\s\"',;&}]{4,}"
        ),
        r"\1\2[hidden]",
    ),
    # Keys as the large services write them, and JSON Web Tokens.
    (re.compile(r"\b(?:sk|pk|rk|gh[opsu]|glpat|xox[abprs]|AKIA)[-_]?[A-Za-z0-9_-]{12,}"), "[hidden]"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)?"), "[hidden]"),
)
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong, in XProtocol's words. The code of a stranger may be one that we do not know."""

    code: str
    message: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class RpcError:
    """What went wrong, in JSON-RPC's words."""

    code: int
    message: str
    data: Json = None


def fault(code: FaultCode, message: str | None = None, *, retry_after: float | None = None) -> Fault:
    """A fault of our own; without a message, the table's."""
    if message is None:
        message = MCP_ERRORS[code][1] if code in MCP_ERRORS else "Upstream error"
    return Fault(code, message, retry_after)


def mcp_error(fault: Fault) -> RpcError:
    """XP 5.3: the MCP error for an XProtocol fault. Unknown codes are internal errors (D-69)."""
    data: dict[str, Json] = {"xprotocol_code": fault.code[:64]}
    if fault.retry_after is not None:
        data["retry_after"] = fault.retry_after
    for known, (code, message) in MCP_ERRORS.items():
        if fault.code == known:
            return RpcError(code, message, data)
    # UPSTREAM_ERROR, and whatever a stranger calls its faults: their message is all there is to say.
    return RpcError(INTERNAL_ERROR, scrub(fault.message) or "Upstream error", data)


def fault_of_mcp(code: int, message: str, *, secrets: Iterable[str] = ()) -> Fault:
    """D-69: the XProtocol fault for an error that a wrapped MCP server answered."""
    return Fault(_FAULT_OF_RPC.get(code, "UPSTREAM_ERROR"), scrub(message, secrets) or "Upstream error")


def unavailable() -> Fault:
    """D-69: the server cannot be reached, or did not answer in time. Says nothing about where it is."""
    return fault("ENDPOINT_UNAVAILABLE")


def error_payload(fault: Fault, in_reply_to: str) -> dict[str, Json]:
    """The payload of `xp.error`."""
    payload: dict[str, Json] = {"code": fault.code, "message": fault.message, "in_reply_to": in_reply_to}
    if fault.retry_after is not None:
        payload["retry_after"] = fault.retry_after
    return payload


def read_error(payload: Json) -> Fault:
    """The fault in a stranger's `xp.error`; raises ContractRefused when it is none."""
    if not isinstance(payload, dict) or not isinstance(payload.get("code"), str):
        raise ContractRefused("malformed", "xp.error has to have a code")
    message, retry_after = payload.get("message"), payload.get("retry_after")
    return Fault(
        payload["code"][:64],
        scrub(message) if isinstance(message, str) else "",
        # `True` is an int to Python.
        float(retry_after) if isinstance(retry_after, int | float) and retry_after is not True else None,
    )


def scrub(message: str, secrets: Iterable[str] = ()) -> str:
    """A message that may cross to strangers: no secret of ours, nothing that looks like one, one short line.

    `secrets` are the credentials in use. What only looks like a secret is guessed by its shape, so this is a
    second line of defence, not a reason to put secrets into messages.
    """
    text = message
    # Longest first: one secret may begin with another.
    for secret in sorted((secret for secret in secrets if secret), key=len, reverse=True):
        text = text.replace(secret, "[hidden]")
    if len(text) > 4 * MAX_MESSAGE_CHARS:
        # Some of the shapes take quadratic time. Not within a word: half a secret has no shape.
        text = (text[: 4 * MAX_MESSAGE_CHARS].rsplit(None, 1) or [""])[0]
    for shape, replacement in _SECRET_SHAPES:
        text = shape.sub(replacement, text)
    text = _CONTROLS.sub(" ", text).strip()
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"
