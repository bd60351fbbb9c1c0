"""Records of a journal as security events, plain or as OCSF 1.9 has them: who did what, and no values."""

from __future__ import annotations

from typing import Final

from moot import __version__
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.store.journal_reader import JournalRecord

# What an input other than an envelope is called here.
_INPUTS: Final = {
    "sign_in": "signed_in",
    "passkey_sign_in": "signed_in",
    "sign_in_refused": "sign_in_refused",
    "sign_out": "signed_out",
    "temporary_token": "token_made",
    "rotate": "token_replaced",
    "passkey_add": "passkey_added",
    "passkey_remove": "passkey_removed",
    "join": "joined",
    "refused": "refused",
    "config": "configuration_changed",
}
_KINDS: Final = {
    "capability/grant": "granted",
    "capability/revoke": "revoked",
    "space/invite": "invited",
    "space/kick": "removed",
    "participant/pause": "paused",
    "participant/resume": "resumed",
    "participant/shutdown": "shut_down",
    "mcp/proposal": "proposed",
    "mcp/reject": "rejected",
    "mcp/withdraw": "withdrawn",
    "moot/approve": "voted",
    "moot/delegate": "delegated",
    "moot/endorse": "endorsed",
    "trust/rule": "rule_changed",
    "trust/accept": "rule_changed",
    "trust/stop": "rules_stopped",
}
# OCSF: event → class, activity. Authentication, User Management, API Activity (other).
_AUTHENTICATION: Final = {"signed_in": 1, "joined": 1, "sign_in_refused": 1, "signed_out": 2}
_MANAGEMENT: Final = {"invited": 1, "removed": 3, "granted": 14, "revoked": 15}
_OTHER: Final = 99
_URGENT: Final = frozenset({"paused", "shut_down", "removed", "rules_stopped", "records_missing"})


def security_event(record: JournalRecord, space: str) -> dict[str, Json] | None:
    """What a record tells a SIEM; None if nothing. Its `id` is the same each time that it is sent."""
    outcome = record.text("out")
    is_refused = outcome not in ("", "accepted")
    name = _INPUTS.get(record.text("in")) or _KINDS.get(record.kind)
    if record.kind == "mcp/request" and record.correlations and not is_refused:
        # It carries out a proposal, or goes on with one.
        name = "approved"
    if is_refused:
        name = "refused"
    if name is None:
        return None
    payload: Json = record.envelope_fields.get("payload")
    payload = payload if isinstance(payload, dict) else {}
    params: Json = payload.get("params")
    tool = params.get("name") if isinstance(params, dict) else None
    named = [payload.get(key) for key in ("recipient", "participant_id", "participant")]
    whom = [each for each in [*named, *(record.envelope_fields.get("to") or ())] if isinstance(each, str)]
    event: dict[str, Json] = {
        "id": f"{space}/{record.number}",
        "time": rfc3339(record.time),
        "event": name,
        "space": space,
        "who": record.text("who") or record.text("by"),
        "kind": record.kind,
        "code": outcome if is_refused else record.text("why"),
        "message": record.id,
        "about": ", ".join(record.correlations),
        "tool": tool if isinstance(tool, str) else "",
        "to": ", ".join(whom),
    }
    return {key: value for key, value in event.items() if value}


def missing_event(space: str, first: int, last: int, time: float) -> dict[str, Json]:
    """That records were removed, by retention, before they were sent."""
    return {
        "id": f"{space}/{first}-{last}",
        "time": rfc3339(time),
        "event": "records_missing",
        "space": space,
        "message": f"records {first} to {last} were removed before they were sent",
    }


def ocsf(event: dict[str, Json], time: float) -> dict[str, Json]:
    """The same as an event of OCSF 1.9."""
    name, who = event["event"], event.get("who", "unknown")
    failed = name in ("refused", "sign_in_refused")
    made: dict[str, Json] = {
        "time": round(time * 1000),
        "severity_id": 4 if name in _URGENT else 3 if failed else 1,
        "status_id": 2 if failed else 1,
        "message": f"{who}: {name}" + (f" ({event['code']})" if event.get("code") else ""),
        "metadata": {
            "version": "1.9.0",
            "uid": event["id"],
            "product": {"name": "Moot", "vendor_name": "Moot", "version": __version__},
        },
        "unmapped": {key: value for key, value in event.items() if key not in ("id", "time")},
    }
    user = {"name": who}
    if name in _AUTHENTICATION:
        return _of_class(
            made | {"user": user, "service": {"name": event["space"]}}, 3002, _AUTHENTICATION[name]
        )
    if name in _MANAGEMENT:
        about = {"user": {"name": event.get("to", "unknown")}, "actor": {"user": user}}
        return _of_class(made | about, 3007, _MANAGEMENT[name])
    made |= {
        "actor": {"user": user},
        "api": {"operation": event.get("kind") or name},
        "src_endpoint": {"name": who},
    }
    if event.get("tool"):
        made["resources"] = [{"name": event["tool"], "type": "tool"}]
    if name == "proposed":
        # Who may not act proposes: mostly an agent.
        made["metadata"]["profiles"] = ["ai_operation"]
        made["ai_agent"] = user
    return _of_class(made, 6003, _OTHER)


def _of_class(event: dict[str, Json], uid: int, activity: int) -> dict[str, Json]:
    return {
        "class_uid": uid,
        "category_uid": uid // 1000,
        "activity_id": activity,
        "type_uid": uid * 100 + activity,
        **event,
    }
