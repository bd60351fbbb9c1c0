"""What a member offers as an MCP server (MEW 8.2, MCPx 2.1): tools, resources, prompts, and lists of them.

A member that offers nothing answers with empty lists; what one connection does not offer is left to the
others of its member (`moot.protocol.answer_marks`). Lists are in the order of registration. Registering
or removing something sends `…/list_changed`, if our rights allow it.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypedDict, Unpack

import msgspec

from moot import __version__
from moot.errors import McpError, UsageError
from moot.mcp.eras import LISTS
from moot.participant.connection.envelope_sender import EnvelopeSender
from moot.participant.serving.request_server import IncomingRequest, RequestServer
from moot.participant.serving.tools import Tool, ToolError
from moot.protocol.answer_marks import mark_result
from moot.protocol.operation import Json
from moot.protocol.rpc_codes import INVALID_PARAMS, METHOD_NOT_FOUND

log = logging.getLogger(__name__)

# MCP 2025-11-25 for a resource nobody has; the stateless era says -32602, and takes this for an error too.
RESOURCE_NOT_FOUND: Final = -32002
# The handshake era's versions that a member of a space can keep to; the stateless one has no handshake.
VERSIONS: Final = ("2025-06-18", "2025-11-25", "2025-03-26")
STATELESS_VERSION: Final = "2026-07-28"
_TEMPLATE_PART = re.compile(r"\{(\w+)\}")

Method = Callable[[IncomingRequest], Awaitable[dict[str, Json]]]


class OwnResource(msgspec.Struct, frozen=True):
    """A resource or a template of them: what is shown, and what reads it."""

    definition: Mapping[str, Json]
    read: Callable[..., Any]
    matches: re.Pattern[str] | None = None


class OwnPrompt(msgspec.Struct, frozen=True):
    """A prompt: what is shown, and what makes its messages."""

    definition: Mapping[str, Json]
    make: Callable[..., Any]


class OwnOffers:
    """Everything a member offers. `answer` and `can_run` are the handlers of a `RequestServer`."""

    def __init__(self, server: RequestServer, sender: EnvelopeSender) -> None:
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, OwnResource] = {}
        self.templates: dict[str, OwnResource] = {}
        self.prompts: dict[str, OwnPrompt] = {}
        # By resource, who wants to know when it changes.
        self.subscribers: dict[str, set[str]] = {}
        # Lists whose change was not announced yet.
        self._changed: dict[str, None] = {}
        self._server = server
        self._sender = sender
        self._methods: dict[str, Method] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": _empty_result,
            "logging/setLevel": _empty_result,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": _no_completion,
        }

    async def answer(self, request: IncomingRequest) -> dict[str, Json] | None:
        """The result of a request; raises McpError. None for a broadcast if nothing is offered."""
        method = self._methods.get(request.method)
        if method is None:
            if request.is_broadcast:
                return None
            raise McpError(METHOD_NOT_FOUND, f"no method {request.method[:128]!r} here")
        if request.is_broadcast and not self._has_any():
            return None
        result = await method(request)
        is_empty = request.method in LISTS and not result[LISTS[request.method]]
        return mark_result(result) if is_empty or not self._has_any() else result

    def can_run(self, method: str, params: Mapping[str, Json]) -> bool:
        """Whether a proposed operation could run here at all (MEW 3.3.2)."""
        name, uri = params.get("name"), params.get("uri")
        if method == "tools/call":
            return isinstance(name, str) and name in self.tools
        if method == "prompts/get":
            return isinstance(name, str) and name in self.prompts
        if method in ("resources/read", "resources/subscribe"):
            return isinstance(uri, str) and self._find(uri)[0] is not None
        return method in self._methods

    def _has_any(self) -> bool:
        return bool(self.tools or self.resources or self.templates or self.prompts)

    # Registering

    def add_tool(self, tool: Tool) -> None:
        """Offer a tool; the same name again replaces it."""
        self.tools[tool.name] = tool
        self._announce("tools")

    def remove_tool(self, name: str) -> None:
        """Offer a tool no longer; raises UsageError if there is none of that name."""
        if self.tools.pop(name, None) is None:
            raise UsageError(f"no tool {name!r} is offered here")
        self._announce("tools")

    def add_resource(self, resource: OwnResource) -> None:
        """Offer a resource or a template; the same URI again replaces it."""
        if resource.matches is None:
            self.resources[resource.definition["uri"]] = resource
        else:
            self.templates[resource.definition["uriTemplate"]] = resource
        self._announce("resources")

    def add_prompt(self, prompt: OwnPrompt) -> None:
        """Offer a prompt; the same name again replaces it."""
        self.prompts[prompt.definition["name"]] = prompt
        self._announce("prompts")

    def notify_updated(self, uri: str) -> bool:
        """Tell those who subscribed to a resource that it changed; whether that was sent to anybody."""
        to = sorted(self.subscribers.get(uri, ()))
        if not to:
            return False
        return self._server.notify("notifications/resources/updated", {"uri": uri}, to=to)

    def _announce(self, what: str) -> None:
        """Announce a change, once for all that is registered in one go."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._announce_now)
        self._changed[what] = None

    def _announce_now(self) -> None:
        changed, self._changed = self._changed, {}
        for what in changed:
            self._server.notify(f"notifications/{what}/list_changed", None)

    # Methods

    async def _initialize(self, request: IncomingRequest) -> dict[str, Json]:
        """Nothing here depends on a handshake, but older clients start with one."""
        asked = request.params.get("protocolVersion")
        version = asked if asked in VERSIONS else VERSIONS[0]
        return {"protocolVersion": version, "capabilities": self._capabilities(), "serverInfo": self._info()}

    async def _discover(self, _: IncomingRequest) -> dict[str, Json]:
        return {
            "supportedVersions": [STATELESS_VERSION, *VERSIONS],
            "capabilities": self._capabilities(),
            "serverInfo": self._info(),
        }

    def _capabilities(self) -> dict[str, Json]:
        return {
            "tools": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "prompts": {"listChanged": True},
        }

    def _info(self) -> dict[str, Json]:
        return {"name": self._sender.me, "version": __version__}

    async def _list_tools(self, _: IncomingRequest) -> dict[str, Json]:
        return {"tools": [dict(tool.definition) for tool in self.tools.values()]}

    async def _call_tool(self, request: IncomingRequest) -> dict[str, Json]:
        params = request.params
        name, arguments = params.get("name"), params.get("arguments", {})
        tool = self.tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise McpError(INVALID_PARAMS, f"unknown tool: {str(name)[:128]!r}")
        if not isinstance(arguments, dict):
            raise McpError(INVALID_PARAMS, "arguments must be an object")
        try:
            return await tool.run(arguments, request)
        except McpError:
            raise
        except ToolError as fault:
            return _error_result(str(fault))
        except Exception:
            # A request's task. The details are for the operator only: they may hold paths or secrets.
            log.exception("a tool failed")
            return _error_result(f"{name} failed; the log of its host says why")

    async def _list_resources(self, _: IncomingRequest) -> dict[str, Json]:
        return {"resources": [dict(each.definition) for each in self.resources.values()]}

    async def _list_templates(self, _: IncomingRequest) -> dict[str, Json]:
        return {"resourceTemplates": [dict(each.definition) for each in self.templates.values()]}

    async def _read_resource(self, request: IncomingRequest) -> dict[str, Json]:
        uri = request.params.get("uri")
        resource, given = self._find(uri) if isinstance(uri, str) else (None, {})
        if resource is None or not isinstance(uri, str):
            raise McpError(RESOURCE_NOT_FOUND, "no such resource", {"uri": uri})
        value = resource.read(**given)
        content = await value if inspect.isawaitable(value) else value
        return {"contents": [_contents(uri, content, resource.definition.get("mimeType"))]}

    def _find(self, uri: str) -> tuple[OwnResource | None, dict[str, str]]:
        found = self.resources.get(uri)
        if found is not None:
            return found, {}
        for template in self.templates.values():
            match = None if template.matches is None else template.matches.fullmatch(uri)
            if match is not None:
                return template, match.groupdict()
        return None, {}

    async def _subscribe(self, request: IncomingRequest) -> dict[str, Json]:
        uri = request.params.get("uri")
        if not isinstance(uri, str) or self._find(uri)[0] is None:
            raise McpError(RESOURCE_NOT_FOUND, "no such resource", {"uri": uri})
        self.subscribers.setdefault(uri, set()).add(request.sender)
        return {}

    async def _unsubscribe(self, request: IncomingRequest) -> dict[str, Json]:
        uri = request.params.get("uri")
        if isinstance(uri, str):
            self.subscribers.get(uri, set()).discard(request.sender)
        return {}

    def handle_member_left(self, member: str) -> None:
        for subscribed in self.subscribers.values():
            subscribed.discard(member)

    async def _list_prompts(self, _: IncomingRequest) -> dict[str, Json]:
        return {"prompts": [dict(each.definition) for each in self.prompts.values()]}

    async def _get_prompt(self, request: IncomingRequest) -> dict[str, Json]:
        name, arguments = request.params.get("name"), request.params.get("arguments", {})
        prompt = self.prompts.get(name) if isinstance(name, str) else None
        if prompt is None:
            raise McpError(INVALID_PARAMS, f"unknown prompt: {str(name)[:128]!r}")
        wanted = {each["name"]: each.get("required", False) for each in prompt.definition["arguments"]}
        missing = [each for each, required in wanted.items() if required and each not in arguments]
        if missing or not isinstance(arguments, dict) or arguments.keys() - wanted.keys():
            raise McpError(
                INVALID_PARAMS, f"wrong arguments: this prompt takes {', '.join(wanted) or 'none'}"
            )
        value = prompt.make(**arguments)
        made = await value if inspect.isawaitable(value) else value
        return {"messages": made if isinstance(made, list) else [_user_message(str(made))]}


async def _empty_result(_: IncomingRequest) -> dict[str, Json]:
    return {}


async def _no_completion(_: IncomingRequest) -> dict[str, Json]:
    return {"completion": {"values": []}}


class ResourceOptions(TypedDict, total=False):
    """Options of `space.resource`; name and description come from the function if they are not given."""

    name: str | None
    title: str | None
    description: str | None
    mime_type: str | None


def resource_of(function: Callable[..., Any], uri: str, **options: Unpack[ResourceOptions]) -> OwnResource:
    """A resource that this function reads; `{parts}` of the URI make it a template and become arguments."""
    description = options.get("description")
    fields = {
        "name": options.get("name") or getattr(function, "__name__", uri),
        "title": options.get("title"),
        "description": description if description is not None else inspect.getdoc(function),
        "mimeType": options.get("mime_type"),
    }
    shown = {key: value for key, value in fields.items() if value is not None}
    parts = _TEMPLATE_PART.findall(uri)
    if not parts:
        return OwnResource({"uri": uri} | shown, function)
    if len(set(parts)) < len(parts):
        raise UsageError(f"a part stands twice in {uri!r}")
    pieces = _TEMPLATE_PART.split(uri)
    # Odd ones are names. A part is one path segment: `/` in it would let one template take another's place.
    pattern = "".join(
        f"(?P<{piece}>[^/]+)" if index % 2 else re.escape(piece) for index, piece in enumerate(pieces)
    )
    return OwnResource({"uriTemplate": uri} | shown, function, re.compile(pattern))


def prompt_of(
    function: Callable[..., Any], *, name: str | None = None, description: str | None = None
) -> OwnPrompt:
    """A prompt that this function writes: a string, or a list of MCP messages."""
    about = description if description is not None else inspect.getdoc(function)
    arguments = [
        {"name": parameter.name, "required": parameter.default is parameter.empty}
        for parameter in inspect.signature(function).parameters.values()
    ]
    definition: dict[str, Json] = {"name": name or getattr(function, "__name__", "prompt")}
    if about:
        definition["description"] = about
    return OwnPrompt(definition | {"arguments": arguments}, function)


def _contents(uri: str, content: object, mime_type: Json) -> dict[str, Json]:
    shown: dict[str, Json] = {"uri": uri}
    if mime_type is not None:
        shown["mimeType"] = mime_type
    if isinstance(content, bytes):
        return shown | {"blob": base64.b64encode(content).decode()}
    if not isinstance(content, str):
        raise UsageError(f"a resource reads as str or bytes, not {type(content).__name__}")
    return shown | {"text": content}


def _user_message(text: str) -> dict[str, Json]:
    return {"role": "user", "content": {"type": "text", "text": text}}


def _error_result(text: str) -> dict[str, Json]:
    return {"content": [{"type": "text", "text": text}], "isError": True}
