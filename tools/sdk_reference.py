"""The page on the Python SDK, written from signatures and docstrings; `tools.make_docs` calls it.

Plain Markdown, so that it reads the same on the site, on a code host and in an editor.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import ForwardRef, NamedTuple, get_args, is_typeddict

import msgspec

import moot
from moot import errors, participant
from moot.participant.connection.inbound_check import ViolationLog
from moot.participant.connection.roster import Roster
from moot.participant.control.administration import Administration
from moot.participant.conversation.chat import Chats
from moot.participant.conversation.contexts import Contexts
from moot.participant.conversation.stream_client import StreamClient
from moot.participant.decisions.proposal_list import ProposalList
from moot.participant.serving.own_offers import OwnOffers
from moot.participant.serving.request_server import RequestServer
from tools.settings_comments import comments_of

# One line where it fits, else one parameter a line.
_WIDTH = 96
# The parts of a space: their attribute, class, and what other parts of the SDK call on them.
_PARTS: Sequence[tuple[str, type, frozenset[str]]] = (
    ("admin", Administration, frozenset()),
    ("roster", Roster, frozenset({"apply_welcome", "apply_presence", "names_of", "rights_of"})),
    (
        "proposals",
        ProposalList,
        frozenset(
            {"add", "add_past", "add_recorded", "restore", "set_gateway_time", "is_faithful"}
            | {"mark_uncertain", "mark_forgotten", "clear_uncertain", "end"}
        ),
    ),
    ("chats", Chats, frozenset()),
    ("contexts", Contexts, frozenset()),
    ("streams", StreamClient, frozenset({"apply_welcome", "fail_all", "close_owned", "end"})),
    ("offers", OwnOffers, frozenset({"answer", "can_run"})),
    ("server", RequestServer, frozenset({"interrupt", "notify"})),
    ("violations", ViolationLog, frozenset({"report"})),
)
# Longer defaults say nothing in a signature.
_DEFAULT_CHARS = 40


def sdk_page(note: str) -> str:
    core = [name for name in moot.__all__ if name not in participant.__all__]
    parts = [
        "# Python SDK",
        f"{note} [Write a participant](../how-to/write-a-participant.md) shows how the parts are used "
        "together.",
        "## Connect",
        "```py\nfrom moot import connect\n```",
        *_member("connect", participant.connect),
        *_member("token_from", participant.token_from),
        "## The joined space",
        "`JoinedSpace`, called `space` here. " + _prose(participant.JoinedSpace),
        *_class_body("space", participant.JoinedSpace),
        "## The parts of a space",
        "What is not needed every day is a method of one of these parts.",
        *(line for part in _PARTS for line in _part(*part)),
        "## Values and handlers",
        "```py\nfrom moot.participant import Outcome, ToolError  # and so on\n```",
    ]
    for name in participant.__all__:
        if name not in ("connect", "token_from", "JoinedSpace"):
            parts += _member(name, getattr(participant, name))
    parts += [
        "## The core",
        "A space as a value, without a gateway: the [tutorial](../tutorial.md) starts with it. These names "
        "are loaded when first used, so `import moot` alone costs next to nothing. What lies deeper in the "
        "package can be imported too, and may move between releases.",
        "```py\nfrom moot import Space, SpaceConfig  # and so on\n```",
    ]
    for name in core:
        parts += _member(name, getattr(moot, name))
    parts += ["## Exceptions", _exceptions()]
    return "\n\n".join(part for part in parts if part) + "\n"


def _member(name: str, thing: object) -> Iterator[str]:
    """One public name: a heading, how it is called, what it says of itself."""
    yield f"### `{name}`"
    if isinstance(thing, type):
        yield _prose(thing)
        yield from _class_body(name, thing)
    elif inspect.isfunction(thing):
        yield _fence(_signature(name, thing))
        yield _prose(thing)
    elif get_args(thing):
        yield "One of " + ", ".join(f"`{each.__name__}`" for each in get_args(thing)) + "."
    elif isinstance(thing, Mapping):
        yield "By name: " + ", ".join(f"`{key}`" for key in thing) + "."
    elif isinstance(thing, Sequence):
        yield "One of " + ", ".join(f"`{each}`" for each in thing) + "."


def _part(attribute: str, thing: type, skip: frozenset[str]) -> Iterator[str]:
    """One part of a space, without the methods through which it gets what arrives."""
    yield f"### `space.{attribute}`"
    yield _prose(thing)
    handlers = {name for name in vars(thing) if name == "handle" or name.startswith("handle_")}
    yield from _class_body(f"space.{attribute}", thing, skip | handlers)


def _class_body(name: str, thing: type, skip: frozenset[str] = frozenset()) -> Iterator[str]:
    if table := _fields(thing, skip):
        yield table
    for attribute in _public(thing):
        static = inspect.getattr_static(thing, attribute)
        if attribute in skip or isinstance(static, property):
            continue
        function = getattr(static, "__func__", static)
        yield f"#### `{name}.{attribute}`"
        decorator = "@classmethod\n" if isinstance(static, classmethod) else ""
        yield _fence(decorator + _signature(attribute, function))
        yield _prose(function)


def _public(thing: type) -> Iterator[str]:
    """Methods and properties in the order of the source, those of the class itself first."""
    seen: set[str] = set()
    for owner in thing.__mro__[:-1]:
        # What a class takes over from outside of Moot is described there.
        if not owner.__module__.startswith("moot."):
            continue
        for attribute, value in vars(owner).items():
            if attribute.startswith("_") or attribute in seen:
                continue
            seen.add(attribute)
            if isinstance(value, property | staticmethod | classmethod) or inspect.isfunction(value):
                yield attribute


class _Row(NamedTuple):
    name: str
    type: str
    default: str = ""
    about: str = ""


def _fields(thing: type, skip: frozenset[str]) -> str:
    """A table of what an object holds: fields with the comments beside them, then properties."""
    comments = dict(comments_of(inspect.getsource(thing)))
    rows: list[_Row] = []
    if issubclass(thing, msgspec.Struct):
        annotations = inspect.get_annotations(thing)
        for field in msgspec.structs.fields(thing):
            default = _default(field.default, field.default_factory)
            rows.append(_Row(field.name, str(annotations.get(field.name, "")), default))
    elif is_dataclass(thing):
        for each in fields(thing):
            if not each.name.startswith("_"):
                rows.append(_Row(each.name, str(each.type), _default(each.default, each.default_factory)))
    elif is_typeddict(thing):
        for base in getattr(thing, "__orig_bases__", ()):
            if is_typeddict(base):
                comments = dict(comments_of(inspect.getsource(base))) | comments
        rows += [_Row(name, _plain(kind)) for name, kind in thing.__annotations__.items()]
    rows = [row._replace(about=comments.get(row.name, "")) for row in rows]
    for name in _public(thing):
        static = inspect.getattr_static(thing, name)
        if isinstance(static, property) and static.fget and name not in skip:
            kind = inspect.signature(static.fget).return_annotation
            rows.append(_Row(name, _plain(kind), about=_prose(static)))
    return _table(rows) if rows else ""


def _table(rows: Sequence[_Row]) -> str:
    """Columns that would be empty are left out."""
    titles = {"name": "name", "type": "type", "default": "default", "about": "meaning"}
    kept = [title for title in titles if title == "name" or any(getattr(row, title) for row in rows)]
    lines = [" | ".join(["", *(titles[each] for each in kept), ""]).strip(), "|" + "---|" * len(kept)]
    for row in rows:
        cells = [
            f"`{text}`" if column in ("name", "type") and text else text
            for column in kept
            for text in [str(getattr(row, column)).replace("|", "\\|").replace("\n", " ")]
        ]
        lines.append(" | ".join(["", *cells, ""]).strip())
    return "\n".join(lines)


def _default(value: object, factory: object) -> str:
    if value in (MISSING, msgspec.NODEFAULT):
        made = factory() if callable(factory) else None
        return f"`{_short(made)}`" if made is not None else ""
    return f"`{_short(value)}`"


def _short(value: object) -> str:
    # A struct as a default has a table of its own.
    if isinstance(value, msgspec.Struct):
        return f"{type(value).__name__}()"
    text = repr(value)
    return text if len(text) <= _DEFAULT_CHARS else "..."


def _signature(name: str, function: Callable[..., object]) -> str:
    signature = inspect.signature(function)
    prefix = "async def" if inspect.iscoroutinefunction(function) else "def"
    returns = signature.return_annotation
    tail = "" if returns is signature.empty else f" -> {_plain(returns)}"
    parameters = list(_parameters(signature))
    line = f"{prefix} {name}({', '.join(parameters)}){tail}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{prefix} {name}(", *(f"    {each}," for each in parameters), f"){tail}"])


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    starred = False
    for each in signature.parameters.values():
        if each.name in ("self", "cls"):
            continue
        if each.kind is each.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred = starred or each.kind is each.VAR_POSITIONAL
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        text = f"{stars}{each.name}"
        if each.annotation is not each.empty:
            text += f": {_plain(each.annotation)}"
        if each.default is not each.empty:
            text += f" = {_short(each.default)}"
        yield text


def _plain(annotation: object) -> str:
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    if isinstance(annotation, str):
        return annotation
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _fence(code: str) -> str:
    return f"```py\n{code}\n```"


def _prose(thing: object) -> str:
    """The docstring; what is indented in it is code."""
    return "\n".join(line.rstrip() for line in (inspect.getdoc(thing) or "").splitlines())


def _errors() -> Iterator[tuple[str, str, type[Exception]]]:
    """Name, base and class of each exception of `moot.errors`."""
    for name, error in vars(errors).items():
        is_error = isinstance(error, type) and issubclass(error, Exception)
        if is_error and error.__module__.startswith(errors.__name__):
            yield name, error.__base__.__name__, error


def _exceptions() -> str:
    lines = ["All of them are in `moot.errors`.", "", "| exception | is a | when |", "|---|---|---|"]
    for name, base, error in _errors():
        about = " ".join((inspect.getdoc(error) or "").partition("\n\n")[0].split())
        lines.append(f"| `{name}` | `{base}` | {about} |")
    return "\n".join(lines)
