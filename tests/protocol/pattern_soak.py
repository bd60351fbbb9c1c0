"""Random capabilities and messages, and what must hold of them.

`Dice` throws patterns together with messages that they often match: globs are filled in, objects are
made from the payload that they shall meet, or the other way round. Each `check_…` throws one case,
says how many comparisons it made, and raises AssertionError when a rule is broken.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from moot.errors import InvalidPattern
from moot.protocol.operation import Operation
from moot.protocol.patterns import (
    Capability,
    Notation,
    Rights,
    covered_by,
    covers,
    overlaps,
    read_capability,
)
from moot.protocol.patterns.globs import glob, includes, overlap
from tests.protocol import reference_patterns as twin

Json = Any

METHODS = [*twin.CONTEXT_FIELDS, "tools/list", "ping", "notifications/x"]
OPERATIONS = ["mcp/request", "mcp/proposal", "mcp/response"]
KINDS = [*OPERATIONS, "mcp/withdraw", "mcp/reject", "mcp/foo", "proposal/reject", "acme", "a.b/c"]
KINDS += ["chat", "chat/cancel", "stream/request", "stream/x/y", "system/error"]
KIND_GLOBS = ["*", "**", "mcp/*", "mcp/re*", "chat/*", "chat*", "stream/*", "*/request", "m*", "?cp/*t"]
NAMES = ["read_file", "read_dir", "a", "ab", "a/b", "a/../b", "..", "file:///x", "/d/", "x:y"]
MCPX_BASES = ["*", "chat", "chat/*", "mcp/*", "mcp/re*", *OPERATIONS, *OPERATIONS, "mcp/foo", "proposal/*"]
MCPX_BASES += ["proposal/withdraw", "proposal/r*", "stream/*", "stream/request", "acme", "acme/x:y", "a*"]
M3P_BASES = ["*", "chat.message", "chat.*", "chat.c*", "mcp.*", "mcp.request", "mcp.re*", "mcp.response"]
M3P_BASES += ["mcp.proposal", "mcp.request", "mcpx.*", "mcpx.withdraw.proposal", "mcpx.reject.*"]
M3P_BASES += ["stream.*", "stream.x*", "mcpx.ext.acme", "mcpx.ext.a.b/c", "system.*", "proposal.reject"]
REGEXES = ["/a/", "/^a.b/", "/(a|b)+_/", "/[./]{2}/", "/read_(file|dir)/", "/^[a-z]+/"]
PATHS = ["$", "$.a", "$.a.b", "$['a']", "$..a", "$..*", "$.*", "$.a[0]", "$.a[-1]", "$.a[*]", "$.b[0:2]"]
SCALARS: list[Json] = [0, 1, 1.0, 2.5, True, False, None]


@dataclass(frozen=True)
class Message:
    """What the gateway knows of an envelope when it asks for a right."""

    kind: str
    payload: dict[str, Json]
    to: tuple[str, ...] = ()
    asked: Operation | None = None
    claim: Operation | None = None
    agreed: bool = True

    def meets(self, right: Capability | Rights) -> bool:
        ask = right.allow if isinstance(right, Rights) else right.matches
        return ask(self.kind, self.payload, self.to, asked=self.asked, claim=self.claim, agreed=self.agreed)

    def meets_twin(self, right: Capability) -> bool:
        return twin.right_matches(
            right.original,
            right.notation,
            self.kind,
            self.payload,
            self.to,
            asked=self.asked,
            claim=self.claim,
            agreed=self.agreed,
        )


class Dice:
    def __init__(self, random: Random) -> None:
        self.random = random

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def pick(self, choices: list[Json]) -> Json:
        return choices[self.random.randrange(len(choices))]

    # Strings.

    def text(self) -> str:
        if self.chance(30):
            return str(self.pick(NAMES))
        return "".join(self.pick(["a", "b", "/", ".", "..", "_"]) for _ in range(self.random.randrange(6)))

    def glob(self) -> str:
        signs = ["a", "b", "/", ".", "..", ".*.", "*", "**", "?", "*"]
        return "".join(self.pick(signs) for _ in range(self.random.randrange(7)))

    def glob_for(self, text: str) -> str:
        """A glob that often matches the text: some of it replaced by wildcards."""
        out = ""
        at = 0
        while at < len(text):
            if self.chance(25):
                out += self.pick(["*", "**", "?"])
                at += self.random.randrange(1, 4)
            else:
                out += text[at]
                at += 1
        return out + ("*" if self.chance(20) else "")

    def filled(self, pattern: str) -> str:
        """A text that the glob often matches: its wildcards filled in."""
        fill = {"*": ["", "", "a", "ab", "a/b", "..", "/..", "../", "/"], "?": ["a", "b", ".", "/"]}
        return "".join(self.pick(fill[char]) if char in fill else char for char in pattern)

    def wider_glob(self, pattern: str) -> str:
        """A glob that often includes the other."""
        return "".join(
            self.pick(["*", "**", "?", char, "", char + "*"]) if self.chance(20) else char for char in pattern
        )

    # Values and the patterns that meet them.

    def value(self, depth: int = 3) -> Json:
        if depth and self.chance(35):
            return {key: self.value(depth - 1) for key in self.keys()}
        if depth and self.chance(15):
            return [self.value(depth - 1) for _ in range(self.random.randrange(3))]
        return self.pick(SCALARS) if self.chance(30) else self.text()

    def keys(self) -> list[str]:
        return [key for key in ("a", "b", "ab", "method") if self.chance(50)]

    def pattern_for(self, value: Json, depth: int = 3) -> Json:
        """A pattern that often matches the value."""
        if self.chance(8):
            return [self.pattern_for(self.value(1), 0), self.pattern_for(value, depth - 1)]
        if self.chance(8):
            return {"$exact": value if self.chance(80) else self.value(1)}
        if isinstance(value, dict) and depth > 0:
            return self.fields_for(value, depth)
        if isinstance(value, str):
            return self.string_for(value)
        return self.pick(SCALARS) if isinstance(value, dict | list) or self.chance(10) else value

    def fields_for(self, value: dict[str, Json], depth: int) -> dict[str, Json]:
        fields: dict[str, Json] = {}
        for key, inner in value.items():
            if self.chance(70):
                fields[self.glob_for(key) or "x" if self.chance(10) else key] = self.pattern_for(
                    inner, depth - 1
                )
        if self.chance(12):
            path = self.pick(PATHS)
            fields[path] = self.pattern_for(
                self.pick(twin.values_at(path, value) or [self.text()]), depth - 1
            )
        if self.chance(8):
            fields["**"] = self.pattern_for(self.pick(twin.all_values(value)), depth - 1)
        return fields

    def string_for(self, text: str) -> str:
        throw = self.random.randrange(100)
        if throw < 35 and not text.startswith("!"):
            return text
        if throw < 75:
            return self.glob_for(text)
        if throw < 85:
            return "!" + self.glob()
        return str(self.pick(REGEXES)) if throw < 92 else self.glob()

    def wider(self, pattern: Json) -> Json:
        """A pattern that often covers the other."""
        throw = self.random.randrange(100)
        if throw < 10:
            return [pattern, self.string_for(self.text())]
        if throw < 14:
            return self.pattern_for(self.value(2))
        if isinstance(pattern, dict) and "$exact" in pattern:
            return self.pattern_for(pattern["$exact"]) if throw < 70 else pattern
        if isinstance(pattern, dict):
            return {key: self.wider(inner) for key, inner in pattern.items() if self.chance(75)}
        if isinstance(pattern, list):
            return [self.wider(inner) for inner in pattern if self.chance(90)] or pattern
        if isinstance(pattern, str):
            if pattern.startswith("!"):
                return "!" + self.pick([pattern[1:], self.filled(pattern[1:]), self.glob()])
            if throw < 30:
                return self.pick(["*", "!" + self.glob(), "!" + self.glob(), self.pick(REGEXES)])
            return (
                pattern
                if throw < 40 or (len(pattern) > 2 and pattern[0] == pattern[-1] == "/")
                else self.wider_glob(pattern)
            )
        return pattern

    def value_for(self, pattern: Json) -> Json:
        """A value that often matches the pattern."""
        if isinstance(pattern, list):
            return self.value_for(self.pick(pattern))
        if isinstance(pattern, dict) and "$exact" in pattern:
            return (
                pattern["$exact"] if self.chance(80) else self.value_for(self.pattern_for(pattern["$exact"]))
            )
        if isinstance(pattern, dict):
            return self.fields_value(pattern)
        if isinstance(pattern, str):
            plain = pattern.startswith("!") or (len(pattern) > 2 and pattern[0] == pattern[-1] == "/")
            return self.text() if plain else self.filled(pattern)
        return self.pick(SCALARS) if self.chance(5) else pattern

    def fields_value(self, pattern: dict[str, Json]) -> dict[str, Json]:
        fields: dict[str, Json] = {key: self.value(1) for key in self.keys() if self.chance(30)}
        for key, inner in pattern.items():
            value = self.value_for(inner)
            if key == "**":
                fields["deep"] = self.pick([value, {"x": value}, [value]])
            elif key.startswith("$"):
                fields["a"] = self.pick([value, {"b": value}, [value]])
            else:
                fields[self.filled(key)] = value
        return fields

    # Capabilities.

    def operation_payload(self) -> dict[str, Json]:
        method = self.pick(METHODS)
        params: dict[str, Json] = {}
        for key in ("name", "uri"):
            if self.chance(40):
                params[key] = self.pick(NAMES)
        if self.chance(30):
            params["ref"] = {self.pick(["name", "uri"]): self.pick(NAMES)}
        payload: dict[str, Json] = {"method": method, "params": params}
        return payload if self.chance(90) else {"params": params}

    def payload(self) -> dict[str, Json]:
        return self.operation_payload() if self.chance(60) else {key: self.value(2) for key in self.keys()}

    def kind_pattern(self) -> Json:
        throw = self.random.randrange(100)
        if throw < 60:
            return self.pick(KINDS)
        if throw < 85:
            return self.pick(KIND_GLOBS)
        if throw < 95:
            return [self.pick(KINDS), self.pick(KIND_GLOBS + KINDS)]
        return self.pick(["!chat", "!mcp/*", "/^mcp/", "/chat/"])

    def object(self, payload: dict[str, Json] | None = None) -> dict[str, Json]:
        capability: dict[str, Json] = {"kind": self.kind_pattern()}
        if self.chance(70):
            capability["payload"] = (
                self.operation_pattern() if self.chance(25) else self.fields_for(payload or self.payload(), 3)
            )
        if self.chance(10):
            capability["to"] = self.pick([["a*"], ["bob", "a"], "b*"])
        if self.chance(15):
            limit = {"method": self.part(METHODS), "context": self.part(NAMES)}
            capability["x-moot-request"] = {
                key: part for key, part in limit.items() if self.chance(60) or key == "method"
            }
        if self.chance(10):
            capability["x-note"] = "label"
        return capability

    def operation_pattern(self) -> dict[str, Json]:
        """What a string can say, or nearly: a method and its context."""
        method = self.pick(METHODS)
        pattern: dict[str, Json] = {"method": self.pick([method, method, "*", self.part(METHODS)])}
        context = self.pick(["*", self.part(NAMES), [self.part(NAMES), self.part(NAMES)]])
        parts = [field.split(".")[1:] for field in twin.CONTEXT_FIELDS.get(method, [])]
        if len(parts) == 1 and self.chance(70):
            pattern["params"] = {parts[0][0]: context}
        elif parts and self.chance(70):
            refs = [{"name": context}, {"uri": context}]
            pattern["params"] = {"ref": self.pick([refs, refs[0], refs[1]])}
        return pattern

    def part(self, words: list[str]) -> str:
        word: str = self.pick(words)
        return word if self.chance(50) else self.glob_for(word)

    def string(self) -> tuple[str, Notation]:
        notation: Notation = "mcpx" if self.chance(50) else "m3p"
        base: str = self.pick(MCPX_BASES if notation == "mcpx" else M3P_BASES)
        takes_method = base.startswith("mcp") and not base.startswith("mcpx") and base != "mcp/foo"
        if takes_method and self.chance(75):
            base += (":" if notation == "mcpx" else ".") + self.pick(["*", "**", self.part(METHODS)])
            if self.chance(50):
                base += ":" + self.pick(["*", "**", self.part(NAMES), self.part(NAMES)])
        return base, notation

    def capability(self, payload: dict[str, Json] | None = None) -> Capability:
        while True:
            try:
                if self.chance(60):
                    return read_capability(self.object(payload), notation="mew")
                if self.chance(10):
                    return read_capability(self.pick(KINDS + KIND_GLOBS), notation="mew")
                text, notation = self.string()
                return read_capability(text, notation=notation)
            except InvalidPattern:
                continue

    def wider_capability(self, wanted: Capability) -> Capability:
        """A capability that often covers the other, in a notation of its own."""
        notation: Notation = self.pick(["mew", "mew", "mcpx", "m3p"])
        source = self.pick(wanted.view(notation) or [wanted.original])
        if isinstance(source, dict):
            source = {
                key: part for key, part in source.items() if key in ("kind", "payload") or self.chance(70)
            }
            source = {**source, "kind": self.wider(source["kind"]) if self.chance(50) else source["kind"]}
            if "payload" in source:
                source["payload"] = self.wider(source["payload"])
            if "x-moot-request" in source:
                source["x-moot-request"] = self.wider(source["x-moot-request"])
        elif self.chance(70):
            source = source.rpartition(":")[0] or source if self.chance(50) else self.wider_glob(source)
        try:
            return read_capability(source, notation=notation)
        except InvalidPattern:
            return wanted if self.chance(20) else self.capability()

    # Messages.

    def message(self, right: Capability | None = None, *, plain: bool = False) -> Message:
        """A message that the right often admits; `plain` ones are those that `covers` promises about."""
        kind: str = self.pick(KINDS)
        payload = self.payload()
        asked = Operation(self.pick([*METHODS, None]), self.pick([*NAMES, None]))
        to = tuple(self.pick(["a", "ab", "bob", "x"]) for _ in range(self.random.randrange(3)))
        if right is not None and right.reach:
            source = self.pick([pattern.source for pattern in right.reach])
            kind = self.value_for(source["kind"])
            if "payload" in source:
                payload = self.value_for(source["payload"])
                if self.chance(50) and "method" in payload:
                    payload = {**self.operation_payload(), **payload}
            if "x-moot-request" in source:
                limit = self.value_for(source["x-moot-request"])
                method, context = limit.get("method"), limit.get("context", asked.context)
                asked = Operation(method if isinstance(method, str) else None, context)
        claim = None if self.chance(50) else self.claim(kind, payload, asked, plain=plain)
        return Message(
            kind,
            payload,
            to,
            asked if kind == "mcp/response" and self.chance(80) else None,
            claim,
            plain or claim is None or self.chance(70),
        )

    def claim(self, kind: str, payload: Json, asked: Operation, *, plain: bool) -> Operation | None:
        if kind not in OPERATIONS:
            return Operation(None, None)
        if kind == "mcp/response":
            return asked
        if not plain and self.chance(40):
            return Operation(self.pick([*METHODS, None]), self.pick([*NAMES, None]))
        method = payload.get("method")
        if not isinstance(method, str):
            return Operation(None, None)
        fields = [f"$.{field}" for field in twin.CONTEXT_FIELDS.get(method, [])]
        found = [
            value for path in fields for value in twin.values_at(path, payload) if isinstance(value, str)
        ]
        if len(found) > 1 and plain:
            return None
        # A method without a field for it may be sent with any context: it is not looked at (D-49).
        spare = None if fields else self.pick([*NAMES, None])
        return Operation(method, found[0] if found else spare)


# The rules.


def check_globs(dice: Dice) -> int:
    pattern = dice.glob()
    for text in (dice.text(), dice.filled(pattern), dice.filled(pattern)):
        assert glob(pattern).matches(text) == twin.glob_matches(pattern, text), (pattern, text)
    return 3


def check_glob_inclusion(dice: Dice) -> int:
    narrow = dice.glob()
    wide = dice.pick([dice.glob(), dice.wider_glob(narrow), dice.wider_glob(narrow)])
    included, met = includes(glob(wide), glob(narrow)), overlap(glob(wide), glob(narrow))
    for _ in range(4):
        text = dice.filled(narrow)
        if twin.glob_matches(narrow, text):
            in_wide = twin.glob_matches(wide, text)
            assert in_wide or not included, ("includes", wide, narrow, text)
            assert met or not in_wide, ("overlap", wide, narrow, text)
    return 4


def check_matching(dice: Dice) -> int:
    payload = dice.payload()
    right = dice.capability(payload)
    for message in (dice.message(right), dice.message(right), dice.message()):
        assert message.meets(right) == message.meets_twin(right), (right, message)
    return 3


def check_rights(dice: Dice) -> int:
    rights = Rights(
        [dice.capability() for _ in range(dice.random.randrange(6))], memo=dice.pick([1, 3, 4096])
    )
    sources = [*rights.capabilities, None]
    messages = [dice.message(dice.pick(sources)) for _ in range(8)]
    for message in [*messages, *messages, *reversed(messages)]:
        expected = any(message.meets(right) for right in rights.capabilities)
        assert message.meets(rights) == expected, (rights.capabilities, message)
    return 24


def check_covering(dice: Dice) -> int:
    wanted = dice.capability()
    held = dice.wider_capability(wanted)
    covered, overlapping = covers(held, wanted), overlaps(held, wanted)
    assert covered == covered_by(wanted, [held])
    assert covers(wanted, wanted), wanted
    assert overlapping == overlaps(wanted, held), (held, wanted)
    for _ in range(4):
        message = dice.message(wanted, plain=True)
        if message.meets(wanted):
            in_held = message.meets(held)
            assert in_held or not covered, ("covers", held, wanted, message)
            assert overlapping or not in_held, ("overlaps", held, wanted, message)
    return 4


def check_views(dice: Dice) -> int:
    right = dice.capability()
    notations: list[Notation] = ["mew", "mcpx", "m3p"]
    for notation in notations:
        for shown in right.view(notation):
            view = read_capability(shown, notation=notation)
            for _ in range(2):
                message = dice.message(view, plain=True)
                assert message.meets(right) or not message.meets(view), (right, shown, message)
    return 6


CHECKS: list[Callable[[Dice], int]] = [
    check_globs,
    check_glob_inclusion,
    check_matching,
    check_rights,
    check_covering,
    check_views,
]


def run_pattern_soak(cases: int, seed: int) -> str:
    """Throw that many comparisons, evenly over all rules; one line on what was done."""
    dice = Dice(Random(seed))
    begun = time.perf_counter()
    done = dict.fromkeys(CHECKS, 0)
    for check in CHECKS:
        while done[check] < cases / len(CHECKS):
            done[check] += check(dice)
    each = ", ".join(f"{check.__name__.removeprefix('check_')} {count}" for check, count in done.items())
    return (
        f"pattern soak: {sum(done.values())} cases, seed {seed}, {time.perf_counter() - begun:.0f} s ({each})"
    )
