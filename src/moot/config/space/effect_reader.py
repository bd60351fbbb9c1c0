"""`effects:` of a space: which call is the same effect again, how it is undone, and how it is found out."""

from __future__ import annotations

import math
import re
from typing import Any, Final, get_args

from moot.config.section_reader import at, mapping, one_of, unknown_key
from moot.config.space.call_reader import CALL_KEYS, read_calls
from moot.errors import UsageError
from moot.protocol.argument_template import MAX_PLACES, places_in, render
from moot.protocol.gateway_proposal import Undo
from moot.protocol.operation import Json
from moot.space.config import CallTemplate, ReconcileCall, SpaceEffect

_KEYS: Final = (*CALL_KEYS, "key", "days", "undo", "compensate", "reconcile")
_CALL: Final = ("tool", "to", "arguments")
_RECONCILE: Final = (*_CALL, "done", "not_done", "after_seconds")
UNDO_CLASSES: Final = frozenset(get_args(Undo))
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,63}")
# A space has tools for a few kinds of effects; each is looked at for each call.
MAX_EFFECTS: Final = 100
MAX_DAYS: Final = 3_650


def read_effects(value: Json, path: str) -> tuple[SpaceEffect, ...]:
    """Raises UsageError with all that is wrong, a line each."""
    found: list[SpaceEffect] = []
    faults: list[str] = []
    for name, settings in mapping(value, path).items():
        try:
            found.append(_read_effect(name, settings, at(path, name)))
        except UsageError as fault:
            faults.append(str(fault))
    if len(found) > MAX_EFFECTS:
        faults.append(f"{path}: has {MAX_EFFECTS} entries at most")
    if faults:
        raise UsageError("\n".join(faults))
    return tuple(found)


def _read_effect(name: str, settings: Json, place: str) -> SpaceEffect:
    entry = _known(settings, place, _KEYS)
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{place}: an effect's name has letters, digits, spaces, . _ and -, 64 at most")
    undo: Any = one_of(entry["undo"], UNDO_CLASSES, at(place, "undo")) if "undo" in entry else None
    compensate = _call(entry["compensate"], at(place, "compensate")) if "compensate" in entry else None
    if compensate is not None:
        undo = undo or "compensable"
    if (undo == "compensable") != (compensate is not None):
        raise UsageError(f"{place}: compensate names the call that makes it good, and undo is compensable")
    if undo is None and "key" not in entry:
        raise UsageError(
            f'{place}: says nothing: key (which call is the same again, as in "{{invoice}}/{{payee}}"), '
            "undo (reversible, compensable or final), or both"
        )
    if "key" not in entry and ({"days", "reconcile"} & entry.keys()):
        raise UsageError(f"{place}: days and reconcile are about a key, and there is none")
    return SpaceEffect(
        name=name,
        calls=read_calls(entry, place, tools_only=True),
        key=_key(entry["key"], at(place, "key")) if "key" in entry else "",
        days=_number(entry.get("days", 30), at(place, "days"), MAX_DAYS),
        undo=undo,
        compensate=compensate,
        reconcile=_reconcile(entry["reconcile"], at(place, "reconcile")) if "reconcile" in entry else None,
    )


def _known(value: Json, place: str, keys: tuple[str, ...]) -> dict[str, Any]:
    entry = dict(mapping(value, place))
    for key in entry:
        if key not in keys:
            raise unknown_key(place, key, keys)
    return entry


def _key(value: Json, place: str) -> str:
    places = places_in(value) if isinstance(value, str) else ()
    if not isinstance(value, str) or not 0 < len(places) <= MAX_PLACES:
        raise UsageError(
            f'{place}: must name arguments in braces, {MAX_PLACES} at most, as in "{{invoice}}/{{payee}}"'
        )
    left = render(value, dict.fromkeys(places, ""))
    if "{" in left or "}" in left:
        raise UsageError(f"{place}: has a brace that belongs to no argument")
    return value


def _call(value: Json, place: str) -> CallTemplate:
    entry = _known(value, place, _CALL)
    tool, to = entry.get("tool"), entry.get("to", "")
    if not isinstance(tool, str) or not tool or not isinstance(to, str):
        raise UsageError(f'{place}: must name a tool, as in {{tool: refund, arguments: {{id: "{{id}}"}}}}')
    arguments = dict(mapping(entry.get("arguments", {}), at(place, "arguments")))
    return CallTemplate(tool=tool, to=to, arguments=arguments)


def _reconcile(value: Json, place: str) -> ReconcileCall:
    entry = _known(value, place, _RECONCILE)
    done = dict(mapping(entry.get("done", {}), at(place, "done")))
    not_done = dict(mapping(entry["not_done"], at(place, "not_done"))) if "not_done" in entry else None
    if not done or not_done == {} or done == not_done:
        raise UsageError(f"{place}: done must say what its result has then, as in done: {{status: paid}}")
    return ReconcileCall(
        call=_call({key: entry[key] for key in _CALL if key in entry}, place),
        done=done,
        not_done=not_done,
        after_seconds=_number(entry.get("after_seconds", 60), at(place, "after_seconds"), 86_400, least=0),
    )


def _number(value: Json, place: str, most: float, *, least: float = 0.001) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{place}: must be a number")
    if not least <= value <= most:
        raise UsageError(f"{place}: must be more than 0 and at most {most:g}")
    return value
