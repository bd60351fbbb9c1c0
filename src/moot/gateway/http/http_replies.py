"""JSON responses: error codes as HTTP statuses, and reading of requests (D-40, D-84)."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from moot.errors import InvalidRequest, Refused
from moot.gateway.access import AccessDenied
from moot.gateway.hosting.durability import CarriedOut
from moot.gateway.hosting.unsaved_changes import NOT_ON_DISK
from moot.protocol import strict_json
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.resilience.refused_body import discard_body

# D-40: the HTTP status of each error code; the others are mistakes of the caller: 400.
STATUS: Final[Mapping[str, int]] = {
    "auth_violation": 403,
    "capability_violation": 403,
    "unauthorized": 403,
    "participant_paused": 403,
    "participant_shutdown": 403,
    "participant_not_found": 404,
    "target_not_found": 404,
    "stream_not_found": 404,
    "request_not_found": 404,
    "duplicate_id": 409,
    "proposal_settled": 409,
    "proposal_mismatch": 409,
    "approval_required": 409,
    "passkey_required": 403,
    "passkey_invalid": 403,
    "budget_exceeded": 409,
    "already_answered": 409,
    "target_absent": 409,
    "rate_limited": 429,
    "resource_limit": 429,
    "unavailable": 503,
    "outcome_unknown": 503,
}
_CSP: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

HEADERS: Final = {
    "Content-Security-Policy": _CSP,
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def json_response(status: int, body: Json) -> Response:
    return Response(strict_json.encode(body), status, media_type="application/json", headers=HEADERS)


def denied(denied: AccessDenied) -> Response:
    body: dict[str, Json] = {"error": "denied", "message": denied.message}
    if denied.retry_after is not None:
        body["retry_after"] = round(denied.retry_after, 3)
    response = json_response(denied.status, body)
    response.headers.update(denied.headers)
    return response


def refused(
    code: str, message: str, details: Mapping[str, Json], kind: str = "", detail: Json = None
) -> Response:
    status = STATUS.get(code, 400)
    if detail == "reserved_kind" and kind.startswith("system"):
        status = 400  # D-10: as existing clients expect of system/register
    attempted = {"attempted_kind": kind} if kind else {}
    body = {"error": code, "message": message} | attempted | dict(details)
    response = json_response(status, body)
    if "retry_after" in body:
        response.headers["Retry-After"] = str(max(1, round(float(body["retry_after"]))))
    return response


def accepted(carried_out: CarriedOut) -> tuple[int, dict[str, Json]]:
    """What is answered to a message that was accepted: 200 only if it is on disk (D-97)."""
    fields = dict(carried_out.results[0].fields) if carried_out.results else {}
    fields.setdefault("status", "accepted")
    fields.setdefault("timestamp", rfc3339(time.time()))
    if fields["status"] in ("already_exists", "error"):
        return (409 if fields["status"] == "already_exists" else 400), fields
    return in_effect(carried_out, fields)


def in_effect(carried_out: CarriedOut, fields: Mapping[str, Json]) -> tuple[int, dict[str, Json]]:
    """200 when it is on disk; 202 when it took effect at once because it only reduces rights (D-85)."""
    if carried_out.on_disk:
        return 200, dict(fields)
    return 202, {**fields, "on_disk": False, "message": NOT_ON_DISK}


async def not_found(_request: Request, _fault: Exception) -> Response:
    return json_response(
        404, {"error": "not_found", "message": "nothing is here; /openapi.json lists what there is"}
    )


async def not_allowed(_request: Request, _fault: Exception) -> Response:
    return json_response(405, {"error": "method_not_allowed", "message": "/openapi.json lists what there is"})


class RequestRefused(Exception):
    """Ends a request with this denial."""

    def __init__(self, denied: AccessDenied) -> None:
        super().__init__(denied.message)
        self.denied = denied


def check_json(request: Request) -> None:
    """D-84: a form or plain text can be sent by any page without asking; JSON cannot."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise RequestRefused(AccessDenied(415, "send Content-Type: application/json"))


def moment(text: str | None) -> float:
    if not text:
        return 0.0
    try:
        moment = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError):
            moment = math.nan
    if not math.isfinite(moment):
        raise InvalidRequest("since is a timestamp, or what `next` said before")
    return moment


async def announces_more(request: Request, most: int) -> bool:
    """Whether the body would be larger: known before it is read, and then thrown away."""
    length = request.headers.get("content-length", "")
    is_more = length.isdecimal() and int(length) > most
    if is_more:
        await discard_body(request.receive, request.headers)
    return is_more


async def body_of(request: Request, most: int) -> bytes | None:
    """The body, or None when it is too large: then the rest is thrown away, so that the refusal is read."""
    if await announces_more(request, most):
        return None
    parts: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            if message.get("more_body"):
                await discard_body(request.receive)
            return None
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


async def object_of(request: Request, most: int) -> dict[str, Any]:
    raw = await body_of(request, most)
    if raw is None:
        raise InvalidRequest(f"a body has at most {most} bytes")
    fields = strict_json.parse(raw or b"{}")
    if not isinstance(fields, dict):
        raise InvalidRequest("the body must be a JSON object")
    return fields


def kind_of(refusal: Refused) -> str:
    return refusal.kind or ""
