"""`--below NAME=PLACE`: a capability for calls whose argument is an address or a path below a place."""

from __future__ import annotations

import re
from collections.abc import Sequence

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.protocol.patterns.globs import is_wild
from moot.protocol.patterns.pattern import is_regex
from moot.protocol.patterns.url_prefix import is_address, url_prefix_pattern


def limit_to_places(capability: Json, places: Sequence[str]) -> Json:
    """The capability with each NAME=PLACE as a pattern for that argument; raises UsageError."""
    if not places:
        return capability
    payload = capability.get("payload") if isinstance(capability, dict) else None
    method = payload.get("method") if isinstance(payload, dict) else None
    if not isinstance(capability, dict) or not isinstance(payload, dict):
        raise UsageError("--below needs a capability with a method, such as mcp/request:tools/call:fetch")
    params = payload.get("params") or {}
    if not isinstance(params, dict):
        raise UsageError("--below needs a capability whose params are an object")
    for text in places:
        name, sign, place = text.partition("=")
        if not name or not sign or name.startswith("$") or is_wild(name):
            raise UsageError(f"--below takes NAME=PLACE, such as url=https://example.org/docs/, not {text!r}")
        pattern = _place_pattern(place)
        if method == "resources/read" and name == "uri":
            params = {**params, name: pattern}
        elif method == "tools/call":
            arguments = params.get("arguments") or {}
            if not isinstance(arguments, dict) or name in arguments or "$exact" in arguments:
                raise UsageError(f"the capability says already what {name} may be: leave --below out")
            params = {**params, "arguments": {**arguments, name: pattern}}
        else:
            raise UsageError("--below is for arguments of tools/call, and for the uri of resources/read")
    return {**capability, "payload": {**payload, "params": params}}


def _place_pattern(place: str) -> str:
    # A scheme of two letters or more: `C:/` is a folder.
    if is_address(place) or re.match(r"\s*[A-Za-z][A-Za-z0-9+.-]+:", place):
        pattern = url_prefix_pattern(place)
        if pattern is None:
            raise UsageError(
                f"{place!r} is not the beginning of an address: write a scheme, a whole host in small "
                "letters and a path that ends in /, such as https://example.org/docs/"
            )
        return pattern
    is_plain = not (is_wild(place) or place.startswith("!") or is_regex(place))
    if not is_plain or not place.strip("/") or not place.endswith("/") or ".." in place.split("/"):
        raise UsageError(f"{place!r} is not a folder: write its path with / at the end and without .. or *")
    return f"{place}**"
