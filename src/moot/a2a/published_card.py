"""The card of a member: who it is, where it is called, and its tools as skills."""

from __future__ import annotations

import time
from typing import Any, Final

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

from moot import __version__
from moot.a2a.serve_settings import ServeSettings
from moot.errors import MootError
from moot.participant import JoinedSpace
from moot.protocol.hidden_text import show_hidden

_LIST_SECONDS: Final = 3.0
_MAX_TEXT_CHARS: Final = 1_000


class PublishedCard:
    """The card of one member, with its tools as this service sees them."""

    def __init__(self, member: str, space: JoinedSpace, settings: ServeSettings) -> None:
        self._member = member
        self._space = space
        self._settings = settings
        self._skills: list[AgentSkill] = []
        self._known_until = 0.0

    async def card(self) -> AgentCard:
        now = time.monotonic()
        if now >= self._known_until:
            self._known_until = now + self._settings.limits.skills_seconds
            self._skills = await skills_of(self._space, self._member, self._settings.limits.max_skills)
        return make_card(self._member, self._space.space, self._settings, self._skills)


async def skills_of(space: JoinedSpace, member: str, max_skills: int) -> list[AgentSkill]:
    """The tools that a member shows to this participant; none without the right to ask."""
    if member not in space.roster or not space.may_request(member, "tools/list"):
        return []
    try:
        tools = await space.list_all(member, "tools", timeout_seconds=_LIST_SECONDS)
    except MootError:
        return []
    return [_skill_of(tool) for tool in tools[:max_skills] if isinstance(tool.get("name"), str)]


def make_card(member: str, space: str, settings: ServeSettings, skills: list[AgentSkill]) -> AgentCard:
    url = f"{settings.public_url.rstrip('/')}/{member}"
    talk = AgentSkill(
        id="chat",
        name="chat",
        description=f"Write to {member}: the message is a chat in the space, and the answers are the result.",
        tags=["chat"],
        input_modes=["text/plain"],
        output_modes=["text/plain"],
    )
    where = f" of the space {space}" if space else ""
    return AgentCard(
        name=member,
        description=(
            f"{member}, a member{where}. What it does there needs the rights of the caller, or the approval "
            "of people: then a task waits in the state input-required until they have decided."
        ),
        version=__version__,
        provider=AgentProvider(organization=space or "Moot", url=settings.public_url),
        supported_interfaces=[
            AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="1.0"),
            AgentInterface(url=f"{url}/rest", protocol_binding="HTTP+JSON", protocol_version="1.0"),
            AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="0.3"),
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        security_schemes={
            "bearer": SecurityScheme(
                http_auth_security_scheme=HTTPAuthSecurityScheme(
                    scheme="bearer", description="the token of a participant of the space"
                )
            )
        },
        security_requirements=[SecurityRequirement(schemes={"bearer": StringList()})],
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[talk, *skills],
    )


def _skill_of(tool: dict[str, Any]) -> AgentSkill:
    name = show_hidden(tool["name"])
    description = show_hidden(str(tool.get("description") or f"Calls {name}."))[:_MAX_TEXT_CHARS]
    return AgentSkill(
        id=name,
        name=name,
        description=description,
        tags=["tool"],
        examples=[f'{{"tool": "{name}", "arguments": {{}}}}'],
        input_modes=["application/json"],
        output_modes=["text/plain", "application/json"],
    )
