"""The rules of a space as JSON and back: a journal is replayed under the rules it was written under."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import msgspec

from moot.protocol.operation import Json
from moot.space.config import (
    CallTemplate,
    PasskeyRules,
    Quorum,
    ReconcileCall,
    Reminder,
    SpaceBudget,
    SpaceConfig,
    SpaceEffect,
    SpaceLimits,
)
from moot.space.members.member import load_capabilities, load_participant, save_capability, save_participant

# Limits as version 0.1 named them in its journals and snapshots.
_LIMITS_OF_0_1: Final = {
    "sessions_per_member": "max_sessions_per_member",
    "recent_ids": "max_recent_ids",
    "open_requests": "max_open_requests",
    "open_proposals": "max_open_proposals",
    "streams_per_member": "max_streams_per_member",
    "frame_bytes": "max_frame_bytes",
    "invited_participants": "max_invited_participants",
}

# Limits that came later: what was accepted before there were any is accepted when it is replayed.
_LATER_ENVELOPE_LIMITS: Final = ("max_containers",)
_NO_LIMIT: Final = 1 << 62

# Plain words, switches and names; the rest holds capabilities or numbers.
_PLAIN: Final = (
    "name",
    "access",
    "delegation",
    "kind_validation",
    "enforce_pause",
    "reference_compat",
    "unmapped",
    "ack_delivery",
    "status_delivery",
    "violation_notice",
    "separation_of_duties",
    "last_vote_carries_out",
    "connection_url",
)


def save_config(config: SpaceConfig) -> dict[str, Json]:
    saved: dict[str, Json] = {name: getattr(config, name) for name in _PLAIN}
    return saved | {
        "participants": {name: save_participant(one) for name, one in config.participants.items()},
        "anonymous": None if config.anonymous is None else [save_capability(c) for c in config.anonymous],
        "token_limits": {
            token: [save_capability(c) for c in limit] for token, limit in config.token_limits.items()
        },
        "admit": sorted(config.admit),
        "dialects": sorted(config.dialects),
        "accept_protocols": sorted(config.accept_protocols),
        "invite_baseline": [save_capability(c) for c in config.invite_baseline],
        "quorum": [
            [save_capability(rule.pattern), rule.approvals_needed, list(rule.exempt)]
            for rule in config.quorum
        ],
        "limits": msgspec.to_builtins(config.limits),
        # Left out where there are none: earlier versions compare what they know.
        **({"passkeys": _save_passkeys(config.passkeys)} if config.passkeys != PasskeyRules() else {}),
        **({"reminders": msgspec.to_builtins(config.reminders)} if config.reminders else {}),
        **({"budgets": [_save_budget(each) for each in config.budgets]} if config.budgets else {}),
        **({"effects": [_save_effect(each) for each in config.effects]} if config.effects else {}),
        **({} if config.chat_link_above == "warn" else {"chat_link_above": config.chat_link_above}),
    }


def load_config(saved: dict[str, Any]) -> SpaceConfig:
    anonymous = saved["anonymous"]
    if "separation" in saved:
        saved = saved | {"separation_of_duties": saved["separation"]}
    # Not in those of 0.2.
    defaults: dict[str, Any] = {"last_vote_carries_out": True, "access": "private", "admit": []}
    saved = defaults | saved
    return SpaceConfig(
        **{name: saved[name] for name in _PLAIN},
        participants={name: load_participant(one) for name, one in saved["participants"].items()},
        anonymous=None if anonymous is None else load_capabilities(anonymous),
        token_limits={
            token: load_capabilities(limit) for token, limit in saved.get("token_limits", {}).items()
        },
        admit=frozenset(saved["admit"]),
        dialects=frozenset(saved["dialects"]),
        accept_protocols=frozenset(saved["accept_protocols"]),
        invite_baseline=load_capabilities(saved["invite_baseline"]),
        quorum=tuple(
            Quorum(
                pattern=load_capabilities([pattern])[0],
                approvals_needed=needed,
                # Not in those of 0.2.
                exempt=tuple(exempt[0]) if exempt else (),
            )
            for pattern, needed, *exempt in saved["quorum"]
        ),
        limits=msgspec.convert(_with_todays_names(saved["limits"]), SpaceLimits),
        passkeys=_load_passkeys(saved.get("passkeys", {})),
        budgets=tuple(_load_budget(each) for each in saved.get("budgets", ())),
        effects=tuple(_load_effect(each) for each in saved.get("effects", ())),
        reminders=msgspec.convert(saved.get("reminders", ()), tuple[Reminder, ...]),
        chat_link_above=saved.get("chat_link_above", "warn"),
    )


def _save_passkeys(rules: PasskeyRules) -> dict[str, Json]:
    required = [
        {"calls": save_capability(each.pattern), "risk": each.risk, "exempt": list(each.exempt)}
        | ({"undo": each.undo} if each.undo else {})
        for each in rules.required
    ]
    return {"first": rules.first, "required": required}


def _load_passkeys(saved: dict[str, Any]) -> PasskeyRules:
    required = tuple(
        Quorum(
            pattern=load_capabilities([each["calls"]])[0],
            approvals_needed=1,
            exempt=tuple(each["exempt"]),
            passkey=True,
            risk=each["risk"],
            undo=each.get("undo"),
        )
        for each in saved.get("required", ())
    )
    return PasskeyRules(required=required, first=saved.get("first", "session"))


def _save_budget(budget: SpaceBudget) -> dict[str, Json]:
    fields: dict[str, Json] = msgspec.structs.asdict(budget)
    limits = {name: None if fields[name] is None else str(fields[name]) for name in ("ask_at", "at_most")}
    lists = {"who": list(budget.who), "sum": list(budget.sum)}
    return fields | limits | lists | {"calls": save_capability(budget.calls)}


def _load_budget(saved: dict[str, Any]) -> SpaceBudget:
    limits = {name: None if saved[name] is None else Decimal(saved[name]) for name in ("ask_at", "at_most")}
    lists = {"who": tuple(saved["who"]), "sum": tuple(saved["sum"])}
    return SpaceBudget(**(saved | limits | lists | {"calls": load_capabilities([saved["calls"]])[0]}))


def _save_effect(effect: SpaceEffect) -> dict[str, Json]:
    fields: dict[str, Json] = msgspec.to_builtins(msgspec.structs.asdict(effect) | {"calls": None})
    return fields | {"calls": save_capability(effect.calls)}


def _load_effect(saved: dict[str, Any]) -> SpaceEffect:
    calls = load_capabilities([saved["calls"]])[0]
    plain = {
        "compensate": msgspec.convert(saved["compensate"], CallTemplate | None),
        "reconcile": msgspec.convert(saved["reconcile"], ReconcileCall | None),
    }
    return SpaceEffect(**(saved | plain | {"calls": calls}))


def _with_todays_names(limits: dict[str, Any]) -> dict[str, Any]:
    renamed = {_LIMITS_OF_0_1.get(name, name): value for name, value in limits.items()}
    if "envelope" in limits:
        later = dict.fromkeys(_LATER_ENVELOPE_LIMITS, _NO_LIMIT)
        renamed["envelope"] = later | _with_todays_names(limits["envelope"])
    return renamed
