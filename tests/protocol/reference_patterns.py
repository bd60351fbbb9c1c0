"""The capability language once more, slow and obvious, written from D-11 to D-13, D-46, D-47 and D-52.

Nothing is compiled and nothing is shared with `moot.protocol.patterns`: two readings of the same
rules that agree on millions of cases are worth more than one reading and its author's examples.
Patterns are taken as raw JSON and assumed to be valid. Regular expressions go to Python's `re`, so
callers must keep to the syntax that it shares with RE2, without `$`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

Json = Any
Operation = tuple[str | None, str | None]

CONTEXT_FIELDS: dict[str, list[str]] = {
    "tools/call": ["params.name"],
    "prompts/get": ["params.name"],
    "resources/read": ["params.uri"],
    "resources/subscribe": ["params.uri"],
    "resources/unsubscribe": ["params.uri"],
    "completion/complete": ["params.ref.name", "params.ref.uri"],
}


# D-11: globs.


@lru_cache(maxsize=1 << 16)
def glob_matches(pattern: str, text: str) -> bool:
    if pattern and set(pattern) == {"*"}:
        return True
    guarded: set[int] = set()
    start = 0
    for segment in text.split("/"):
        if segment == "..":
            guarded |= {start, start + 1}
        start += len(segment) + 1

    @cache
    def rest_matches(at: int, by: int) -> bool:
        """Whether pattern[at:] matches text[by:]."""
        if at == len(pattern):
            return by == len(text)
        char = pattern[at]
        if char == "*":
            after = at
            while after < len(pattern) and pattern[after] == "*":
                after += 1
            crosses = after - at > 1 or after == len(pattern)
            for taken in range(by, len(text) + 1):
                if rest_matches(after, taken):
                    return True
                if taken == len(text) or taken in guarded or (text[taken] == "/" and not crosses):
                    return False
        if by == len(text):
            return False
        if char == "?":
            return text[by] != "/" and by not in guarded and rest_matches(at + 1, by + 1)
        return text[by] == char and rest_matches(at + 1, by + 1)

    return rest_matches(0, 0)


# D-12: values.


def string_matches(pattern: str, text: str) -> bool:
    if len(pattern) > 2 and pattern.startswith("/") and pattern.endswith("/"):
        return re.search(pattern[1:-1], text, re.DOTALL) is not None
    if pattern.startswith("!"):
        if re.fullmatch(r"!|!!.*|!/.+/|!\s.*|!.*\s", pattern, re.DOTALL):
            return False
        return not glob_matches(pattern[1:], text)
    return glob_matches(pattern, text)


def value_matches(pattern: Json, value: Json) -> bool:
    if isinstance(pattern, str):
        return isinstance(value, str) and string_matches(pattern, value)
    if isinstance(pattern, list):
        return any(value_matches(alternative, value) for alternative in pattern)
    if isinstance(pattern, dict) and "$exact" in pattern:
        # As text, which tells 1, 1.0 and true apart.
        return json.dumps(pattern["$exact"], sort_keys=True) == json.dumps(value, sort_keys=True)
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(key_matches(k, p, value) for k, p in pattern.items())
    if pattern is None:
        return value is None
    if isinstance(pattern, bool):
        return isinstance(value, bool) and value == pattern
    return not isinstance(value, bool) and isinstance(value, int | float) and value == pattern


def key_matches(key: str, pattern: Json, fields: dict[str, Json]) -> bool:
    if key.startswith("$"):
        found = values_at(key, fields)
    elif key == "**":
        found = all_values(fields)
    elif "*" in key or "?" in key:
        found = [value for name, value in fields.items() if glob_matches(key, name)]
    else:
        found = [fields[key]] if key in fields else []
    return any(value_matches(pattern, value) for value in found)


def all_values(value: Json) -> list[Json]:
    return [value] + [inner for child in children(value) for inner in all_values(child)]


def children(value: Json) -> list[Json]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


STEP = re.compile(r"(\.\.|\.|)(?:(\*)|\[(.*?)\]|([^.\[]+))")


def values_at(path: str, root: Json) -> list[Json]:
    found = [root]
    for dots, star, bracket, name in STEP.findall(path[1:]):
        if dots == "..":
            found = [inner for value in found for inner in all_values(value)]
        if star or bracket == "*":
            found = [child for value in found for child in children(value)]
        elif name or bracket[0] in "'\"":
            wanted = name or bracket[1:-1]
            found = [value[wanted] for value in found if isinstance(value, dict) and wanted in value]
        else:
            lists = [value for value in found if isinstance(value, list)]
            if ":" in bracket:
                first, last = (int(part) if part else None for part in bracket.split(":"))
                found = [element for value in lists for element in value[first:last]]
            else:
                index = int(bracket)
                found = [value[index] for value in lists if -len(value) <= index < len(value)]
    return found


# D-13: capability objects.


def object_matches(
    pattern: dict[str, Json], kind: str, payload: Json, to: Sequence[str], operation: Operation | None
) -> bool:
    if not value_matches(pattern["kind"], kind):
        return False
    if not value_matches(pattern.get("payload", {}), payload):
        return False
    if "to" in pattern:
        names = [pattern["to"]] if isinstance(pattern["to"], str) else pattern["to"]
        if not to or not all(any(glob_matches(name, member) for name in names) for member in to):
            return False
    if "x-moot-request" in pattern:
        if kind != "mcp/response" or operation is None:
            return False
        known = {"method": operation[0], "context": operation[1]}
        return all(value_matches(part, known[name]) for name, part in pattern["x-moot-request"].items())
    return True


# D-46, D-47: strings, compared with kinds as the legacy dialect spells them.

OPERATIONS = ("mcp/request", "mcp/response", "mcp/proposal")


def part_matches(pattern: str, part: str | None) -> bool:
    """A part of a string capability: absent or `*` asks for nothing."""
    return pattern in ("", "*") or (part is not None and glob_matches(pattern, part))


def split_mcpx(text: str) -> tuple[str, str, str]:
    base, _, rest = text.partition(":")
    if not base.startswith("mcp/"):
        return text, "", ""
    method, _, context = rest.partition(":")
    return base, method, context


def kind_matches_mcpx(base: str, kind: str) -> bool:
    if base in ("*", "**"):
        return True
    if kind in ("proposal/withdraw", "proposal/reject"):
        return False  # MCPx has no word for such a vendor kind
    word = {"mcp/withdraw": "proposal/withdraw", "mcp/reject": "proposal/reject"}.get(kind, kind)
    if "*" in base or "?" in base:
        if base.startswith("mcp/"):
            return kind in OPERATIONS and glob_matches(base, word)
        if base.startswith("proposal/"):
            return word in ("proposal/withdraw", "proposal/reject") and glob_matches(base, word)
    return glob_matches(base, word)


def split_m3p(text: str) -> tuple[str, str, str]:
    """The kind part, METHOD and CONTEXT."""
    levels = text.split(".", 2)
    if levels[0] == "mcp" and len(levels) == 3:
        method, _, context = levels[2].partition(":")
        return ".".join(levels[:2]), method, context
    return text, "", ""


def kind_matches_m3p(pattern: str, kind: str) -> bool:
    if pattern in ("*", "**"):
        return True
    protocol, _, rest = pattern.partition(".")
    operation, _, third = rest.partition(".")
    if protocol == "mcp":
        wild = "*" in operation or "?" in operation
        return (kind in OPERATIONS or not wild) and glob_matches(f"mcp/{operation}", kind)
    if protocol == "mcpx" and operation == "ext":
        return kind == third
    if protocol == "mcpx" and ("*" in operation or operation in ("withdraw", "reject")):
        return kind in ("mcp/withdraw", "mcp/reject") and glob_matches(operation, kind.removeprefix("mcp/"))
    if protocol == "chat":
        if kind == "chat":
            return glob_matches(operation, "message")
        return operation != "message" and glob_matches(f"chat/{operation}", kind)
    if protocol == "system":
        return glob_matches(f"system/{operation}", kind)
    return glob_matches(f"{protocol}/{rest}", kind)


def text_matches_claim(text: str, notation: str, kind: str, claim: Operation) -> bool:
    """A legacy sender: the kind as it was written, part by part."""
    base, method, context = split_mcpx(text) if notation == "mcpx" else split_m3p(text)
    if not (kind_matches_mcpx if notation == "mcpx" else kind_matches_m3p)(base, kind):
        return False
    return kind not in OPERATIONS or (part_matches(method, claim[0]) and part_matches(context, claim[1]))


def text_matches_facts(text: str, notation: str, kind: str, payload: Json, asked: Operation | None) -> bool:
    """A MEW sender: the same parts, looked up in the payload or in the request that is answered."""
    base, method, context = split_mcpx(text) if notation == "mcpx" else split_m3p(text)
    if not (kind_matches_mcpx if notation == "mcpx" else kind_matches_m3p)(base, kind):
        return False
    if kind not in OPERATIONS or (method in ("", "*") and context in ("", "*")):
        return True
    if kind == "mcp/response":
        return asked is not None and part_matches(method, asked[0]) and part_matches(context, asked[1])
    done = payload.get("method")
    if not isinstance(done, str) or not part_matches(method, done):
        return False
    if context in ("", "*"):
        return True
    found = [value for field in CONTEXT_FIELDS.get(done, []) for value in values_at(f"$.{field}", payload)]
    return any(isinstance(value, str) and glob_matches(context, value) for value in found)


def right_matches(
    right: Json,
    notation: str,
    kind: str,
    payload: Json,
    to: Sequence[str],
    *,
    asked: Operation | None,
    claim: Operation | None,
    agreed: bool,
) -> bool:
    """One right in any notation, for any sender."""
    if notation == "mew":
        pattern = right if isinstance(right, dict) else {"kind": right}
        if claim is None:
            return object_matches(pattern, kind, payload, to, asked)
        return agreed and object_matches(pattern, kind, payload, to, claim)
    if claim is not None:
        return text_matches_claim(right, notation, kind, claim)
    return text_matches_facts(right, notation, kind, payload, asked)
