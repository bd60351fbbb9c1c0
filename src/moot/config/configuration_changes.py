"""What a reload changes, in words: who is new, gone or has other rights, and which settings are others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from moot.config.configuration import Configuration, MemberConfig, SpaceSettings
from moot.space.config import ParticipantConfig

# Told of each participant, or no setting of a person's.
_ELSEWHERE = frozenset({"name", "participants", "token_limits"})


def describe_changes(before: Configuration, after: Configuration) -> list[str]:
    """One line for each change in the spaces that both have; no values, which may be secret."""
    several = len(before.spaces) > 1
    lines: list[str] = []
    for name, old in before.spaces.items():
        new = after.spaces.get(name)
        if new is not None:
            lines += [f"{name}: {line}" if several else line for line in _changes_of(old, new)]
    if before.gateway.admin_tokens != after.gateway.admin_tokens:
        lines.append("gateway.admin_tokens: changed")
    return lines


def _changes_of(old: SpaceSettings, new: SpaceSettings) -> Iterator[str]:
    before, after = old.config.participants, new.config.participants
    for name in dict.fromkeys((*before, *after)):
        what = _participant_change(before.get(name), after.get(name), name, old.members, new.members)
        if what:
            yield f"{name}: {what}"
    for field in old.config.__struct_fields__:
        if field not in _ELSEWHERE and getattr(old.config, field) != getattr(new.config, field):
            yield f"{field}: changed"
    for field in ("default_participant", "title", "description"):
        if getattr(old, field) != getattr(new, field):
            yield f"{field}: changed"


def _participant_change(
    before: ParticipantConfig | None,
    after: ParticipantConfig | None,
    name: str,
    old: Mapping[str, MemberConfig],
    new: Mapping[str, MemberConfig],
) -> str:
    if before is None or after is None:
        return "removed" if after is None else "added"
    found: list[str] = []
    if _rights_of(before) != _rights_of(after):
        found.append("capabilities")
    if before.credentials != after.credentials:
        found.append("tokens")
    if before.exclusive != after.exclusive:
        found.append("exclusive")
    if old.get(name) != new.get(name):
        found.append("how it is started")
    return f"{', '.join(found)} changed" if found else ""


def _rights_of(participant: ParticipantConfig) -> list[object]:
    return [each.original for each in participant.capabilities]
