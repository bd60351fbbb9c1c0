"""The card of a member: who it is, where it is called, and its tools as skills.

A skill of A2A has no place for the arguments of a tool. Their schemas are in an extension of the card:

    {"uri": "urn:moot:a2a:tool-arguments:1", "params": {"inputSchemas": {"write_file": {…}}}}
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any, Final

from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.struct_pb2 import Struct
from starlette.requests import Request
from starlette.responses import Response

from moot import __version__
from moot.agents.a2a.a2a_settings import ServeSettings
from moot.agents.a2a.card_signer import CardSigner
from moot.errors import MootError
from moot.participant import JoinedSpace
from moot.protocol.hidden_text import readable, show_hidden
from moot.protocol.strict_json import nests_deeper

# The tools of a member on its card, the schemas of their arguments, and how long they are taken as they
# were.
MAX_SKILLS: Final = 100
MAX_SCHEMAS_BYTES: Final = 64 << 10
SKILLS_SECONDS: Final = 30.0

_LIST_SECONDS: Final = 3.0
_MAX_TEXT_CHARS: Final = 1_000
_VERSION: Final = "A2A-Version"
ARGUMENTS_URI: Final = "urn:moot:a2a:tool-arguments:1"
# A card is at most 50 levels deep for `moot a2a join`, and other parsers have bounds, too.
_MAX_SCHEMA_DEPTH: Final = 20


class PublishedCard:
    """The card of one member, with its tools as this service sees them, signed anew when it changes."""

    def __init__(self, member: str, space: JoinedSpace, settings: ServeSettings, signer: CardSigner) -> None:
        self._member = member
        self._space = space
        self._settings = settings
        self._signer = signer
        self._known_until = 0.0
        self._keep(make_card(member, space.space, settings, []))

    def _keep(self, card: AgentCard) -> None:
        self._unsigned = card
        self._changed_at = time.time()
        signed = self._signer.sign(card)
        # 0.3 has other fields in the same object. What is signed are those of 1.0.
        self._old = json.dumps(agent_card_to_dict(signed)).encode()
        self._new = json.dumps(MessageToDict(signed)).encode()

    async def _refresh(self) -> None:
        now = time.monotonic()
        if now >= self._known_until:
            self._known_until = now + SKILLS_SECONDS
            tools = await tools_of(self._space, self._member, MAX_SKILLS)
            card = make_card(self._member, self._space.space, self._settings, tools)
            if card != self._unsigned:
                self._keep(card)

    def endpoint(self) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            await self._refresh()
            # Without a version a request is one of 0.3 (A2A 3.6.2).
            version = request.headers.get(_VERSION) or request.query_params.get(_VERSION, "")
            body = self._new if version.startswith("1.") else self._old
            headers = {
                "ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
                "Cache-Control": f"public, max-age={int(SKILLS_SECONDS)}",
                "Last-Modified": formatdate(self._changed_at, usegmt=True),
                "Vary": _VERSION,
            }
            known = request.headers.get("if-none-match", "")
            if headers["ETag"] in known.replace("W/", "").replace(" ", "").split(","):
                return Response(status_code=304, headers=headers)
            return Response(body, media_type="application/json", headers=headers)

        return answer


async def tools_of(space: JoinedSpace, member: str, max_tools: int) -> list[dict[str, Any]]:
    """The tools that a member shows to this participant; none without the right to ask."""
    if member not in space.roster or not space.may_request(member, "tools/list"):
        return []
    try:
        tools = await space.list_all(member, "tools", timeout_seconds=_LIST_SECONDS)
    except MootError:
        return []
    return [tool for tool in tools[:max_tools] if isinstance(tool.get("name"), str)]


def make_card(member: str, space: str, settings: ServeSettings, tools: list[dict[str, Any]]) -> AgentCard:
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
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=True,
            extended_agent_card=True,
            extensions=_extensions(tools),
        ),
        security_schemes={
            "bearer": SecurityScheme(
                http_auth_security_scheme=HTTPAuthSecurityScheme(
                    scheme="bearer", description="what a participant of the space signs in with"
                )
            )
        },
        security_requirements=[SecurityRequirement(schemes={"bearer": StringList()})],
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[talk, *map(_skill_of, tools)],
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


def _extensions(tools: list[dict[str, Any]]) -> list[AgentExtension]:
    """The schemas of arguments, of the first tools as far as there is room (MAX_SCHEMAS_BYTES)."""
    room, schemas = MAX_SCHEMAS_BYTES, {}
    for tool in tools:
        schema = tool.get("inputSchema")
        if not isinstance(schema, dict) or not schema or nests_deeper(schema, _MAX_SCHEMA_DEPTH):
            continue
        schema = readable(schema)
        room -= len(json.dumps(schema, ensure_ascii=False).encode())
        if room < 0:
            break
        try:
            # Numbers that a card cannot hold as they are would make another schema.
            if MessageToDict(ParseDict(schema, Struct())) == schema:
                schemas[show_hidden(tool["name"])] = schema
        except (ParseError, ValueError):
            continue
    if not schemas:
        return []
    return [
        AgentExtension(
            uri=ARGUMENTS_URI,
            description="The JSON Schema of the arguments of each tool, by the id of its skill.",
            params=ParseDict({"inputSchemas": schemas}, Struct()),
        )
    ]
