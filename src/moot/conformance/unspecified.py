"""What MEW leaves open, so that nobody is blamed for it.

Vectors say exactly what our gateway does, with codes, names and texts that are its own. Another gateway is
asked for no more than the document names: an error has the code and the fields of 3.8.2 and 3.10 where a
vector is about these rows, and is any refusal elsewhere. The fields also tell which row a difference breaks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from moot.conformance.manifest import load_document
from moot.conformance.vectors import Vector, VectorStep
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capability

# The codes that MEW names, and the rows that name them.
_CODES: Final = {
    "capability_violation": ("MEW-3.8.2-2",),
    "target_not_found": ("MEW-3.10.1-15",),
    "stream_not_found": ("MEW-3.10.5-6", "MEW-3.10.6-6", "MEW-3.10.7-7"),
    "unauthorized": ("MEW-3.10.5-7", "MEW-3.10.6-7", "MEW-3.10.7-8"),
    "participant_not_found": ("MEW-3.10.5-8", "MEW-3.10.7-9"),
    "invalid_operation": ("MEW-3.10.6-8",),
}
_CODE_SECTIONS: Final = {
    "stream/grant-write": "MEW-3.10.5-",
    "stream/revoke-write": "MEW-3.10.6-",
    "stream/transfer-ownership": "MEW-3.10.7-",
}
# The same for the other members of an error.
_FIELDS: Final = {"to": ("MEW-3.8.2-1",), "correlation_id": ("MEW-3.8.2-5", "MEW-3-56")}
_PAYLOAD_FIELDS: Final = {"attempted_kind": ("MEW-3.8.2-3",), "your_capabilities": ("MEW-3.8.2-4",)}
# What is always refused, by the words of the document. With other codes ours refuses more than that.
_DEMANDED: Final = frozenset(
    {
        "capability_violation",
        "auth_violation",
        "protocol_mismatch",
        "invalid_json",
        "invalid_envelope",
        "participant_shutdown",
    }
)
_FRAME_CODES: Final = ("stream_not_found", "unauthorized_stream_write")
# MEW 3.9.1: a gateway may enforce a pause.
_OPTIONAL: Final = ("participant_paused",)
# What members may send without a right where ours takes it as an answer that is owed (D-15).
_OWED: Final = frozenset(
    {
        "mcp/response",
        "mcp/request",
        "capability/grant-ack",
        "participant/compact-done",
        "participant/status",
        "chat/acknowledge",
    }
)
# Members of what the gateway says that MEW does not name; of these notices it names the kind alone.
_EXTRAS: Final = {
    "system/presence": ("reason", "name", "invited_by"),
    "stream/open": ("encoding", "owner", "authorized_writers"),
}
_BARE_NOTICES: Final = ("stream/write-granted", "stream/write-revoked", "stream/ownership-transferred")
_OWN_KINDS: Final = ("system/", "space/", "stream/")
_OWN_NAMES: Final = ("gateway", "system:gateway")
# What a refusal is where no more is named.
ANY_REFUSAL: Final[dict[str, Json]] = {"kind": "system/error"}


def asked_of_others(message: Json, rows: Collection[str], sent_kind: str) -> Json:
    """An expected message of the gateway, reduced to what MEW names; `rows` are those of its vector."""
    if not isinstance(message, dict):
        return message
    if "closed" in message:
        return {"closed": "$any"}
    if "refused" in message:
        return {"refused": "$any"}
    kind = message.get("kind")
    if kind == "system/error" or "error" in (message.get("payload") or {}):
        return _error(message, rows, sent_kind)
    if kind in _BARE_NOTICES:
        return {"kind": kind}
    if isinstance(kind, str) and kind.startswith(_OWN_KINDS) and message.get("from") in _OWN_NAMES:
        # Its own name is its own business.
        message = message | {"from": "$text"}
    payload = message.get("payload")
    if sent_kind == "space/invite" and kind == "system/presence" and isinstance(payload, dict):
        who = payload.get("participant")
        return {"kind": kind} | ({} if who is None else {"payload": {"participant": who}})
    if kind in _EXTRAS and isinstance(payload, dict):
        extras = _EXTRAS[str(kind)]
        named = {key: value for key, value in payload.items() if key not in extras}
        if isinstance(who := named.get("participant"), dict):
            named["participant"] = {key: value for key, value in who.items() if key not in extras}
        message = message | {"payload": named}
    return message


def _error(message: Json, rows: Collection[str], sent_kind: str) -> Json:
    payload = message.get("payload") or {}
    asked = ANY_REFUSAL | {
        field: message[field] for field, naming in _FIELDS.items() if field in message and _meet(naming, rows)
    }
    named = {
        field: payload[field]
        for field, naming in _PAYLOAD_FIELDS.items()
        if field in payload and _meet(naming, rows)
    }
    code = payload.get("error")
    if isinstance(code, str) and code_rows(code, rows, sent_kind):
        named["error"] = code
    return asked | ({"payload": named} if named else {})


def code_rows(code: str, rows: Collection[str], sent_kind: str) -> list[str]:
    """The rows among these that name this code for an envelope of this kind."""
    section = _CODE_SECTIONS.get(sent_kind, "MEW-")
    return [row for row in _CODES.get(code, ()) if row in rows and row.startswith(section)]


def rows_of_field(text: str, rows: Collection[str], code: str, sent_kind: str) -> Iterator[str]:
    """The row of the member of an error that a difference is about."""
    if "payload.error: " in text:
        yield from code_rows(code, rows, sent_kind)
    for field, naming in (
        _FIELDS | {f"payload.{key}": each for key, each in _PAYLOAD_FIELDS.items()}
    ).items():
        if f" {field}" in text and ("system/error" in text or "'system/error'" in text):
            yield from (row for row in naming if row in rows)


def why_not_demanded(vector: Vector, step: VectorStep, code: str, sent_kind: str) -> str | None:
    """Why another gateway may accept what ours refuses with this code; None if it may not."""
    rows = step.rows if isinstance(step.rows, list) else vector.rows
    if code in _DEMANDED or code_rows(code, vector.rows, sent_kind):
        return None
    if step.frame is not None and code in _FRAME_CODES:
        return None
    section = _CODE_SECTIONS.get(sent_kind)
    if section is not None and any(row.startswith(section) for row in _CODES.get(code, ())):
        return None
    manifest = load_document("mew")
    if code not in _OPTIONAL and any(row in manifest and manifest[row].level == "MUST" for row in rows):
        return None
    return f"MEW does not say that this is refused (ours says {code})"


def why_owed(vector: Vector, step: VectorStep, sent: Json) -> str | None:
    """Why another gateway may refuse what ours takes as an owed answer; None if a right covers it."""
    kind = str((sent or {}).get("kind", ""))
    if kind not in _OWED:
        return None
    given = vector.space.get("participants", {}).get((step.by or "").partition("/")[0], [])
    rights = given if isinstance(given, list) else given.get("capabilities", [])
    payload = sent.get("payload")
    to = sent.get("to")
    if any(
        read_capability(each).matches(kind, payload or {}, to=to if isinstance(to, list) else [])
        for each in rights
    ):
        return None
    return "needs a gateway that lets owed answers pass without a right (D-15)"


def is_open(message: Json, sent: Json, *, own: bool, joiner: bool) -> bool:
    """Whether a member need not hear what is expected: its own envelopes, and that it came itself."""
    if not isinstance(message, dict):
        return False
    if "$without" in message or (joiner and message.get("kind") == "system/presence"):
        return True
    if not own:
        return False
    return "frame" in message or (bool(sent) and _is_same_envelope(message.get("$exactly", message), sent))


def _is_same_envelope(message: Json, sent: Json) -> bool:
    """Whether an expected message is the envelope that was sent."""
    id = message.get("id")
    if isinstance(id, str) and not id.startswith("$"):
        return bool(id == sent.get("id"))
    return "kind" not in message or message["kind"] == sent.get("kind")


def need_not_be_told(message: Json, sent: Json) -> bool:
    """MEW 3.6.5 has presence tell of an invitation, and does not say in which words."""
    if not isinstance(message, dict) or message.get("kind") != "system/presence":
        return False
    payload = message.get("payload")
    invited = isinstance(payload, dict) and payload.get("event") == "invited"
    return invited or (sent or {}).get("kind") == "space/invite"


def _meet(some: Collection[str], others: Collection[str]) -> bool:
    return not set(some).isdisjoint(others)
