"""The arguments of a proposal as a person changes them before approving: one by one, or in an editor."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from moot.errors import UsageError
from moot.operations.operation import ClientContext, read_json
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant import SeenProposal


def changed_params(seen: SeenProposal, changes: Sequence[str], edited: Json = None) -> dict[str, Json]:
    """The params of a call with `PATH=TEXT` or `PATH:=JSON` put in its arguments; raises UsageError.

    A value takes the type of the one that it replaces: what was a number stays one.
    """
    arguments = _arguments_of(seen) if edited is None else edited
    for word in changes:
        path, equals, text = word.partition("=")
        if not equals or not path.rstrip(":"):
            raise UsageError(f"{word!r} is no change: write PATH=TEXT or PATH:=JSON, as in amount=95")
        arguments = _put(arguments, path.rstrip(":").split("."), path.rstrip(":"), text, path.endswith(":"))
    params = dict(seen.params)
    return params | {"arguments": arguments} if "arguments" in params or "name" in params else arguments


def _arguments_of(seen: SeenProposal) -> Json:
    given = seen.params.get("arguments", {}) if "name" in seen.params else seen.params
    return json.loads(json.dumps(given))


def _put(value: Json, keys: Sequence[str], path: str, text: str, is_json: bool) -> Json:
    if not keys:
        return _typed(value, path, text, is_json)
    key, rest = keys[0], keys[1:]
    if isinstance(value, dict):
        if key not in value and (rest or not is_json):
            # A name that was mistyped would run the call as it was.
            add = "" if rest else f". To add it: {path}:=JSON"
            raise UsageError(f"there is no {path} in its arguments: it has {', '.join(value) or 'none'}{add}")
        return {**value, key: _put(value.get(key), rest, path, text, is_json)}
    if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
        changed = list(value)
        changed[int(key)] = _put(value[int(key)], rest, path, text, is_json)
        return changed
    raise UsageError(f"there is no {path} in its arguments")


def _typed(before: Json, path: str, text: str, is_json: bool) -> Json:
    if isinstance(before, str) and not is_json:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        if before is None and not is_json:
            return text
        what = "JSON" if is_json else f"like {json.dumps(before)[:40]}"
        raise UsageError(f"{path} must be {what}, not {text!r}") from None
    if not is_json and before is not None and _kind(before) is not _kind(value):
        raise UsageError(f"{path} must be like {json.dumps(before)[:40]}, not {text!r}")
    return value


def _kind(value: Json) -> type:
    return float if type(value) is int else type(value)


async def read_changes(
    context: ClientContext, seen: SeenProposal, args: argparse.Namespace
) -> dict[str, Json] | None:
    """The params that a person wants instead of those proposed (`--set`, `--edit`); None: as proposed."""
    if not getattr(args, "set", None) and not getattr(args, "edit", False):
        return None
    seen.check_open()
    if args.again:
        raise UsageError("--again is for exactly the proposed call: approve it with changes, or again")
    edited = None
    if args.edit:
        if context.edit_text is None:
            raise UsageError("no editor can be opened here: use --set PATH=VALUE, or `moot approve --edit`")
        edited = await _edit(seen, context.edit_text)
    return changed_params(seen, args.set, edited)


async def _edit(seen: SeenProposal, edit: Callable[[str], Awaitable[str]]) -> Json:
    text = await edit(json.dumps(_arguments_of(seen), ensure_ascii=False, indent=2) + "\n")
    edited = read_json(text, "what you edited")
    if not isinstance(edited, dict):
        raise UsageError("the arguments must be one JSON object. Nothing was approved")
    return edited
