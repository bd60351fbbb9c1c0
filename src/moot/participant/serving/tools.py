"""Functions as tools: name, description and schemas from the function itself, arguments checked beforehand.

The schema comes from the annotations (everything `msgspec` knows: numbers, strings, lists, dictionaries,
dataclasses, `Literal`, `Enum`, unions, `Annotated[int, "words"]`), descriptions from the docstring and its
`Args:` section. What a caller sends is held against it: unknown, missing or wrong arguments never reach the
function, and the caller is told which (MEW 4.3, tool schemas may differ from what was advertised).
"""

from __future__ import annotations

import asyncio
import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args, get_origin

import msgspec

from moot.errors import UsageError
from moot.participant.connection.message_feed import is_async
from moot.participant.serving.request_server import IncomingRequest
from moot.protocol.operation import Json
from moot.protocol.strict_json import encode

INVALID_PARAMS: Final = -32602

# MCP allows 1 to 128 of these; several clients stop at 64 characters, but that is theirs to say.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_ARGUMENT_LINE = re.compile(r"\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


class ToolError(Exception):
    """Raise it in a tool to fail with words for the caller, and nothing in the log."""


class RawResult(dict[str, Any]):
    """Return it from a tool to answer with exactly these fields (`content`, `isError`, `resultType`, …)."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: what is shown of it, and what is called with a checked set of arguments."""

    definition: Mapping[str, Json]
    run: Callable[[Mapping[str, Json], IncomingRequest], Awaitable[dict[str, Json]]]

    @property
    def name(self) -> str:
        name: str = self.definition["name"]
        return name


def tool_of(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: Mapping[str, Json] | None = None,
    input_schema: Mapping[str, Json] | None = None,
    output_schema: Mapping[str, Json] | None = None,
    thread: bool = False,
) -> Tool:
    """A tool that calls this function; raises UsageError for a function that cannot be one.

    Plain functions run on the loop and must be quick, or in a thread with `thread=True`. A parameter
    annotated `IncomingRequest` is given the request itself and is not part of the schema. With
    `input_schema` the function gets all arguments as one dictionary, held against nothing but that it is one.
    """
    called: str = name or str(getattr(function, "__name__", ""))
    if _TOOL_NAME.fullmatch(called) is None:
        raise UsageError(f"a tool is named with 1 to 128 of A-Z a-z 0-9 _ . -: {called!r}; give name=")
    summary, words = _documentation(inspect.getdoc(function) or "")
    definition: dict[str, Json] = {"name": called}
    if title is not None:
        definition["title"] = title
    if description is not None or summary:
        definition["description"] = description if description is not None else summary
    reader = (
        _WholeArguments(function, input_schema)
        if input_schema is not None
        else _Named(function, called, words)
    )
    definition["inputSchema"] = reader.schema
    shape = _Answers(function, output_schema)
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
        return shape.answer(value)

    return Tool(definition, run)


class _Named:
    """Arguments by the names and types of a function's parameters."""

    def __init__(self, function: Callable[..., Any], name: str, words: Mapping[str, str]) -> None:
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
            told = _annotated(hint, words.get(parameter.name))
            if parameter.default is parameter.empty:
                fields.append((parameter.name, told))
            else:
                fields.append((parameter.name, told, _default(name, parameter)))
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


class _WholeArguments:
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


class _Answers:
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

    def answer(self, value: Any) -> dict[str, Json]:
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
            scope = {"Request": IncomingRequest, **names.globals, **names.nonlocals}
            return typing.get_type_hints(
                target, globalns=function.__globals__, localns=scope, include_extras=True
            )
        except (NameError, TypeError) as still:
            raise UsageError(f"the annotations of {function.__name__} cannot be read: {still}") from None


def _annotated(hint: Any, words: str | None) -> Any:
    """`Annotated[int, "words"]` as msgspec wants it, and words of the docstring where there are no others."""
    if get_origin(hint) is typing.Annotated:
        inner, *notes = get_args(hint)
        texts = [note for note in notes if isinstance(note, str)]
        kept = [note for note in notes if not isinstance(note, str)]
        if texts:
            kept.append(msgspec.Meta(description=texts[0]))
        elif words and not any(isinstance(note, msgspec.Meta) and note.description for note in kept):
            kept.append(msgspec.Meta(description=words))
        return typing.Annotated[(inner, *kept)] if kept else inner
    return typing.Annotated[hint, msgspec.Meta(description=words)] if words else hint


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
    words: dict[str, str] = {}
    start = next((index for index in sections if lines[index].strip() in _ARGUMENT_SECTIONS), None)
    if start is None:
        return summary, words
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
            words[current] = found[2].strip()
        elif current:
            words[current] = f"{words[current]} {line.strip()}".strip()
    return summary, words


_ARGUMENT_SECTIONS: Final = ("Args:", "Arguments:", "Parameters:")
_SECTIONS: Final = (*_ARGUMENT_SECTIONS, "Returns:", "Return:", "Raises:", "Yields:", "Example:", "Examples:")
