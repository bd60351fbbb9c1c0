"""The configuration that a journal keeps: what was saved is what is loaded, also from version 0.1."""

from __future__ import annotations

import json

import msgspec

from moot.protocol.envelope import EnvelopeLimits
from moot.space.config import SpaceConfig, SpaceLimits
from moot.space.config_json import load_config, save_config

# Every limit has another value than its default.
UNUSUAL = SpaceConfig(
    name="lab",
    separation_of_duties=True,
    limits=SpaceLimits(
        **{
            name: number
            for number, name in enumerate(SpaceLimits.__struct_fields__, 100)
            if name != "envelope"
        },
        envelope=EnvelopeLimits(
            **{name: number for number, name in enumerate(EnvelopeLimits.__struct_fields__, 50)}
        ),
    ),
)

# The names that 0.1 gave to limits, in its order; the others are named as they were.
LIMITS_OF_0_1 = [
    "messages_per_second",
    "bytes_per_second",
    "sessions_per_member",
    "recent_ids",
    "request_seconds",
    "open_requests",
    "proposal_seconds",
    "open_proposals",
    "streams_per_member",
    "frame_bytes",
    "invited_participants",
]
# What 0.1 did not have.
ENVELOPE_OF_0_1 = [
    "max_bytes",
]


def test_a_saved_configuration_is_loaded_as_it_was() -> None:
    assert load_config(json.loads(json.dumps(save_config(UNUSUAL)))) == UNUSUAL


# Limits that came after 0.1: those that would refuse what 0.1 accepted, and others.
ENVELOPE_REFUSING_SINCE = ("max_containers",)
SHOWING_SINCE = ("max_signed_in_members",)


def test_no_limit_of_0_1_falls_back_to_its_default() -> None:
    saved = json.loads(json.dumps(save_config(UNUSUAL)))
    saved["separation"] = saved.pop("separation_of_duties")
    names = [name for name in SpaceLimits.__struct_fields__[:-1] if name not in SHOWING_SINCE]
    limits = dict(zip(LIMITS_OF_0_1, [saved["limits"][name] for name in names], strict=True))
    envelope = [
        value for name, value in saved["limits"]["envelope"].items() if name not in ENVELOPE_REFUSING_SINCE
    ]
    saved["limits"] = limits | {"envelope": dict(zip(ENVELOPE_OF_0_1, envelope, strict=True))}
    # What came later refuses nothing that 0.1 accepted, when its journal is replayed.
    later = {name: getattr(SpaceLimits(), name) for name in SHOWING_SINCE}
    messages = msgspec.structs.replace(
        UNUSUAL.limits.envelope, **dict.fromkeys(ENVELOPE_REFUSING_SINCE, 1 << 62)
    )
    expected = msgspec.structs.replace(UNUSUAL.limits, envelope=messages, **later)
    assert load_config(saved) == msgspec.structs.replace(UNUSUAL, limits=expected)
