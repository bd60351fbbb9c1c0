"""Functions as tools: name, description and schemas from the function itself, arguments checked beforehand.

The schema comes from the annotations (everything `msgspec` knows: numbers, strings, lists, dictionaries,
dataclasses, `Literal`, `Enum`, unions, `Annotated[int, "text"]`), descriptions from the docstring and its
`Args:` section. Arguments are checked against it: unknown, missing or wrong ones never reach the function,
and the caller is told which (MEW 4.3, tool schemas may differ from what was advertised).
"""

from __future__ import annotations

import asyncio
import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypedDict, Unpack, get_args, get_origin

import msgspec

from moot.errors import UsageError
from moot.participant.connection.message_feed import is_async
from moot.participant.serving.request_server import IncomingRequest
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode

# MCP allows 1 to 128 of these; several clients stop at 64 characters, but that is theirs to say.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_ARGUMENT_LINE = re.compile(r"\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


class ToolError(Exception):
    """Raise it in a tool to fail with a message for the caller; nothing is logged."""


class RawResult(dict[str, Any]):
    """Return it from a tool to answer with exactly these fields (`content`, `isError`, `resultType`, …)."""


class ToolOptions(TypedDict, total=False):
    """Options of `space.tool` and `tool_of`; what is not given comes from the function itself."""

    name: str | None
    title: str | None
    description: str | None
    # MCP's annotations, such as `{"readOnlyHint": True}`.
    annotations: Mapping[str, Json] | None
    # With it the function gets all arguments as one dictionary, which are not checked against it.
    input_schema: Mapping[str, Json] | None
    output_schema: Mapping[str, Json] | None
    # Run a plain function in a thread.
    thread: bool


class Tool(msgspec.Struct, frozen=True):
    """One tool: its MCP definition, and the function that runs it with checked arguments."""

    definition: Mapping[str, Json]
    run: Callable[[Mapping[str, Json], IncomingRequest], Awaitable[dict[str, Json]]]

    @property
    def name(self) -> str:
        name: str = self.definition["name"]
        return name


def tool_of(
    function: Callable[..., Any],
    **options: Unpack[ToolOptions],
) -> Tool:
    """A tool that calls this function; raises UsageError for a function that cannot be one.

    Plain functions run on the event loop and must be quick, or in a thread with `thread=True`. A parameter
    annotated `IncomingRequest` gets the request itself and is not part of the schema.
    """
    name = options.get("name") or str(getattr(function, "__name__", ""))
    if _TOOL_NAME.fullmatch(name) is None:
        raise UsageError(f"a tool is named with 1 to 128 of A-Z a-z 0-9 _ . -: {name!r}; give name=")
    summary, parameter_texts = _documentation(inspect.getdoc(function) or "")
    definition: dict[str, Json] = {"name": name}
    title, description = options.get("title"), options.get("description")
    input_schema, annotations = options.get("input_schema"), options.get("annotations")
    thread = options.get("thread", False)
    if title is not None:
        definition["title"] = title
    if description is not None or summary:
        definition["description"] = description if description is not None else summary
    reader = (
        _RawArguments(function, input_schema)
        if input_schema is not None
        else _TypedArguments(function, name, parameter_texts)
    )
    definition["inputSchema"] = reader.schema
    shape = _ResultShape(function, options.get("output_schema"))
    if shape.schema is not None:
        definition["outputSchema"] = shape.schema
    if annotations is not None:
        definition["annotations"] = dict(annotations)
    waits = is_async(function)

    async def run(arguments: Mapping[str, Json], request: IncomingRequest) -> dict[str, Json]:
        given = reader.read(arguments, request)
        if waits:
            value = await function(**given)
        elif thread:
            value = await asyncio.to_thread(function, **given)
        else:
            value = function(**given)
        return shape.to_result(value)

    return Tool(definition, run)


class _TypedArguments:
    """Arguments by the names and types of a function's parameters."""

    def __init__(self, function: Callable[..., Any], name: str, texts: Mapping[str, str]) -> None:
        self._requests: list[str] = []
        fields: list[Any] = []
        hints = _hints(function)
        for parameter in _parameters(function).values():
            hint = hints.get(parameter.name, Any)
            if hint is IncomingRequest:
                self._requests.append(parameter.name)
                continue
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise UsageError(f"tool {name}: parameter {parameter.name} cannot be given by name")
            annotated = _annotate(hint, texts.get(parameter.name))
            if parameter.default is parameter.empty:
                fields.append((parameter.name, annotated))
            else:
                fields.append((parameter.name, annotated, _default(name, parameter)))
        try:
            # Keyword only: a required parameter may follow one with a default.
            self._type = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
            self.schema = _inlined(self._type)
        except (TypeError, ValueError) as fault:
            raise UsageError(f"tool {name}: its parameters have no JSON Schema: {fault}") from None
        self._names = [field[0] for field in fields]

    def read(self, arguments: Mapping[str, Json], request: IncomingRequest) -> dict[str, Any]:
        try:
            read = msgspec.convert(arguments, self._type)
        except msgspec.ValidationError as fault:
            # As a result, not as an error of the protocol: a model reads it and tries again (MCP).
            raise ToolError(f"wrong arguments: {fault}") from None
        given = {name: getattr(read, name) for name in self._names}
        for name in self._requests:
            given[name] = request
        return given


class _RawArguments:
    """All arguments as one dictionary, for schemas that come from elsewhere."""

    def __init__(self, function: Callable[..., Any], schema: Mapping[str, Json]) -> None:
        self.schema: Json = dict(schema)
        hints = _hints(function)
        names = list(_parameters(function))
        self._request = next((name for name in names if hints.get(name) is IncomingRequest), None)
        self._arguments = next((name for name in names if name != self._request), None)

    def read(self, arguments: Mapping[str, Json], request: IncomingRequest) -> dict[str, Any]:
        given: dict[str, Any] = {}
        if self._arguments is not None:
            given[self._arguments] = dict(arguments)
        if self._request is not None:
            given[self._request] = request
        return given


class _ResultShape:
    """What a function returns, as a tool's result: text, and structured content where its type says so."""

    def __init__(self, function: Callable[..., Any], schema: Mapping[str, Json] | None) -> None:
        self.schema: Json = None if schema is None else dict(schema)
        self._wrapped = False
        self._structured = schema is not None
        hint = _hints(function).get("return", Any)
        if schema is not None or hint in (Any, None, type(None), str, RawResult, bytes):
            return
        try:
            found = _inlined(hint)
        except (TypeError, ValueError):
            return  # no schema: then only text
        if not found:
            return
        self._structured = True
        if found.get("type") == "object":
            self.schema = found
        else:
            # MCP wants an object; `result` is what its Python SDK wraps other values in, too.
            definitions = found.pop("$defs", None)
            self._wrapped = True
            self.schema = {"type": "object", "properties": {"result": found}, "required": ["result"]}
            if definitions is not None:
                self.schema["$defs"] = definitions

    def to_result(self, value: Any) -> dict[str, Json]:
        if isinstance(value, RawResult):
            return value
        if value is None:
            return {"content": []}
        if isinstance(value, str):
            return {"content": [{"type": "text", "text": value}]}
        plain = msgspec.to_builtins(value)
        result: dict[str, Json] = {"content": [{"type": "text", "text": encode(plain).decode()}]}
        if self._wrapped:
            result["structuredContent"] = {"result": plain}
        elif self._structured and isinstance(plain, dict):
            result["structuredContent"] = plain
        return result


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError) as fault:
        raise UsageError(f"{function!r} does not tell its parameters: {fault}") from None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as fault:
        # `from __future__ import annotations` with names that only a function's own scope knows.
        names = inspect.getclosurevars(function) if inspect.isfunction(function) else None
        if names is None:
            raise UsageError(f"the annotations of {function!r} cannot be read: {fault}") from None
        try:
            scope = {"IncomingRequest": IncomingRequest, **names.globals, **names.nonlocals}
            return typing.get_type_hints(
                target, globalns=function.__globals__, localns=scope, include_extras=True
            )
        except (NameError, TypeError) as still:
            raise UsageError(f"the annotations of {function.__name__} cannot be read: {still}") from None


def _annotate(hint: Any, text: str | None) -> Any:
    """`Annotated[int, "text"]` as msgspec wants it, or with the docstring's text if it has none."""
    if get_origin(hint) is typing.Annotated:
        inner, *notes = get_args(hint)
        texts = [note for note in notes if isinstance(note, str)]
        kept = [note for note in notes if not isinstance(note, str)]
        if texts:
            kept.append(msgspec.Meta(description=texts[0]))
        elif text and not any(isinstance(note, msgspec.Meta) and note.description for note in kept):
            kept.append(msgspec.Meta(description=text))
        return typing.Annotated[(inner, *kept)] if kept else inner
    return typing.Annotated[hint, msgspec.Meta(description=text)] if text else hint


def _default(tool: str, parameter: inspect.Parameter) -> Any:
    value = parameter.default
    if isinstance(value, list | dict | set):
        if value:
            raise UsageError(f"tool {tool}: {parameter.name} has a default that calls would share; use None")
        return msgspec.field(default_factory=type(value))
    return value


def _inlined(type: Any) -> dict[str, Json]:
    """A JSON Schema whose top is the type itself, not a reference to it."""
    (schema,), components = msgspec.json.schema_components([type], ref_template="#/$defs/{name}")
    reference = schema.get("$ref", "") if len(schema) == 1 else ""
    name = reference.removeprefix("#/$defs/")
    top: dict[str, Json] = dict(components.pop(name) if reference else schema)
    top.pop("title", None) if reference else None
    if components:
        top["$defs"] = components
    return top


def _documentation(text: str) -> tuple[str, dict[str, str]]:
    """The docstring up to its first section, and what `Args:` says of each parameter."""
    lines = text.splitlines()
    sections = [index for index, line in enumerate(lines) if line.strip() in _SECTIONS]
    summary = "\n".join(lines[: sections[0]] if sections else lines).strip()
    texts: dict[str, str] = {}
    start = next((index for index in sections if lines[index].strip() in _ARGUMENT_SECTIONS), None)
    if start is None:
        return summary, texts
    current = ""
    indent: int | None = None
    for line in lines[start + 1 :]:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0 or line.strip() in _SECTIONS:
            break
        indent = depth if indent is None else indent
        found = _ARGUMENT_LINE.fullmatch(line)
        if found is not None and depth == indent:
            current = found[1]
            texts[current] = found[2].strip()
        elif current:
            texts[current] = f"{texts[current]} {line.strip()}".strip()
    return summary, texts


_ARGUMENT_SECTIONS: Final = ("Args:", "Arguments:", "Parameters:")
_SECTIONS: Final = (*_ARGUMENT_SECTIONS, "Returns:", "Return:", "Raises:", "Yields:", "Example:", "Examples:")
