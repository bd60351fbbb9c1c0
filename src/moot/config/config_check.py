"""`moot serve --check`: what would run, and what is worth a second look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from moot.config.configuration import Configuration, MemberConfig, SpaceSettings
from moot.config.gateway_config import GatewayConfig, bracketed
from moot.config.loader import load
from moot.space.proposals.budgets import describe_budget
from moot.space.proposals.effect_keys import describe_effect


def check(
    path: Path,
    *,
    environ: Mapping[str, str],
    data: Path | None = None,
    host: str | None = None,
    port: int | None = None,
) -> list[str]:
    """Lines that say what the configuration comes to; raises UsageError if it comes to nothing.

    Writes nothing: tokens that are missing are said to be made, and are not.
    """
    configuration = load(path, environ=environ, data=data, host=host, port=port, dry=True)
    return list(_lines(configuration))


def _lines(configuration: Configuration) -> Iterator[str]:
    yield from _about_gateway(configuration)
    for name, space in configuration.spaces.items():
        yield from _about_space(name, space, configuration.gateway)
    for note in configuration.notes:
        yield f"note: {note}"


def _about_gateway(configuration: Configuration) -> Iterator[str]:
    gateway, files = configuration.gateway, configuration.admin_token_files
    port = gateway.port or "(any free port)"
    yield f"gateway: {gateway.scheme}://{bracketed(gateway.host)}:{port}"
    yield f"  data in {gateway.data}, journal {gateway.journal.mode}"
    if gateway.http.admin:
        for admin in sorted({*gateway.admin_tokens, *files}):
            made = "in" if admin in gateway.admin_tokens else "to be made in"
            yield f"  administrator {admin}: " + (
                f"token {made} {files[admin]}" if admin in files else "1 token"
            )
    if gateway.smtp is not None:
        yield f"  mail through {gateway.smtp.host}:{gateway.smtp.port}"
    for name, receiver in gateway.notifications.receivers.items():
        yield f"  {receiver.participant} is notified by {receiver.type} ({name})"


def _about_space(name: str, space: SpaceSettings, gateway: GatewayConfig) -> Iterator[str]:
    config = space.config
    facts = [config.access, f"speaks {', '.join(sorted(config.dialects))}"]
    if space.journal is not None and space.journal != gateway.journal.mode:
        facts.append(f"journal {space.journal}")
    days = gateway.journal.retain_days if space.retain_days is None else space.retain_days
    if days:
        facts.append(f"records of {days} days")
    if config.reference_compat:
        facts.append("as the reference implementation")
    yield f"space {name}: {', '.join(facts)}"
    listed = Counter(grant.participant for grant in space.tokens.values())
    for participant, settings in config.participants.items():
        facts = [_plural(len(settings.capabilities), "capability", "capabilities")]
        if participant in space.token_files:
            file = space.token_files[participant]
            facts.append(f"token {'in' if listed[participant] else 'to be made in'} {file}")
        else:
            facts.append(_plural(listed[participant], "token", "tokens"))
        if participant in space.output_logs:
            facts.append(f"written to {space.output_logs[participant]}")
        facts += _started(space.members.get(participant))
        yield f"  {participant}: {', '.join(facts)}"
    for step in config.reminders:
        yield f"  pending for {step.after_seconds:g} s: {', '.join(step.tell)} notified"
    for budget in config.budgets:
        yield f"  budget {budget.name}: {describe_budget(budget)}"
    for effect in config.effects:
        yield f"  effect {effect.name}: {describe_effect(effect)}"


def _started(member: MemberConfig | None) -> Iterator[str]:
    """What `moot up` would run; arguments may hold keys and are not shown."""
    if member is None:
        return
    by = "by moot up" if member.auto_start else "only when asked for"
    if member.command is not None:
        yield f"runs {member.command} ({by})"
    if member.mcp_server is not None:
        yield f"bridges {member.mcp_server.command or 'a URL'} ({by})"


def _plural(count: int, one: str, many: str) -> str:
    return f"{count or 'no'} {one if count == 1 else many}"
