"""The rules of a space as JSON and back: a journal is replayed under the rules it was written under."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from moot.protocol.operation import Json
from moot.space.config import Quorum, SpaceConfig, SpaceLimits
from moot.space.roster import load_capabilities, load_participant, save_capability, save_participant

# Plain words, switches and names; the rest holds capabilities or numbers.
_PLAIN: Final = (
    "name",
    "delegation",
    "kind_validation",
    "enforce_pause",
    "reference_compat",
    "unmapped",
    "ack_delivery",
    "status_delivery",
    "violation_notice",
    "separation",
    "connection_url",
)


def save_config(config: SpaceConfig) -> dict[str, Json]:
    saved: dict[str, Json] = {name: getattr(config, name) for name in _PLAIN}
    return saved | {
        "participants": {name: save_participant(one) for name, one in config.participants.items()},
        "anonymous": None if config.anonymous is None else [save_capability(c) for c in config.anonymous],
        "dialects": sorted(config.dialects),
        "accept_protocols": sorted(config.accept_protocols),
        "invite_baseline": [save_capability(c) for c in config.invite_baseline],
        "quorum": [[save_capability(rule.pattern), rule.approvals_needed] for rule in config.quorum],
        "limits": msgspec.to_builtins(config.limits),
    }


def load_config(saved: dict[str, Any]) -> SpaceConfig:
    anonymous = saved["anonymous"]
    return SpaceConfig(
        **{name: saved[name] for name in _PLAIN},
        participants={name: load_participant(one) for name, one in saved["participants"].items()},
        anonymous=None if anonymous is None else load_capabilities(anonymous),
        dialects=frozenset(saved["dialects"]),
        accept_protocols=frozenset(saved["accept_protocols"]),
        invite_baseline=load_capabilities(saved["invite_baseline"]),
        quorum=tuple(
            Quorum(pattern=load_capabilities([pattern])[0], approvals_needed=needed)
            for pattern, needed in saved["quorum"]
        ),
        limits=msgspec.convert(saved["limits"], SpaceLimits),
    )
