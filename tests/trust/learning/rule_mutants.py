"""Mutants of approved calls, judged by programs that are not ours; and an adversary who reads the rules.

Each world is one that `bench.automation` has, with names of its own. Its rules are learned, and then calls
are changed in one or two places: with what other calls and the rules' templates have, with tricks, other
writings and other types. Of what the rules still approve, `meaning_judges` say what it would do. Whatever no
approved call did (another program, flag, column, host, folder, payee, a larger amount) is a fault.
"""

from __future__ import annotations

import base64
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final
from urllib.parse import quote

from moot.protocol.operation import Json
from moot.trust.history.proposal_history import HistoryProposal
from moot.trust.learning.learner import suggest
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import evaluate
from moot.trust.rules.rule_json import rule_as_json, rule_of_json
from moot.values.examples import edge_texts, outside_texts
from tests.trust.histories import START, call, decided, history
from tests.trust.learning.meaning_judges import (
    BashJudge,
    Fact,
    UrlJudge,
    address_facts,
    days_after,
    number_of,
    patch_facts,
    path_facts,
    sql_facts,
    text_facts,
    type_facts,
)
from tests.trust.learning.value_probes import _NAMES, _TRICKS, odd_value, probe_of

Call = dict[str, Json]
TODAY: Final = datetime.fromtimestamp(START, UTC).date()
_TOPS: Final = ("docs", "notes", "plans")
_LABELS: Final = [("ui", "bug"), ("ui",), ("docs", "bug"), ("bug",), ("docs",), ("ui", "docs")]
_PAYEES: Final = {"acme": 100, "globex": 900, "initech": 4_000, "Ada Kern": 40}
_PROGRAMS: Final = ("scan", "render", "git", "head", "kubectl", "docker", "npm", "pip")
_SOME: Final = _NAMES[:20]
COMMANDS: Final = [
    *(f"scan -q --depth {count} src/{name}.txt" for count, name in enumerate(_SOME, 1)),
    *(f"render src/{name}.md > out/{name}.html" for name in _SOME),
    *(f"git commit --message 'Mend the {name} page'" for name in _SOME),
    *(f"git checkout {name}" for name in _SOME),
    *(f"git push origin {name}" for name in _SOME),
    *(f"git log -n {count} | head -n {count}" for count in range(3, 23)),
    *(f"kubectl get pods --namespace {name}" for name in _SOME),
    *(f"docker logs --tail {count} {name}" for count, name in enumerate(_SOME, 1)),
    *(f"npm run lint -- src/{name}.js" for name in _SOME),
    *(f"pip show {name}" for name in _SOME),
]
STATEMENTS: Final = [
    *(f"SELECT id, total FROM orders WHERE id = {n}" for n in range(40)),  # noqa: S608
    *(f"SELECT id FROM orders WHERE owner = '{name}' LIMIT 5" for name in _NAMES),  # noqa: S608
    *(f"SELECT COUNT(*) FROM orders WHERE total > {n}" for n in range(10, 50)),  # noqa: S608
    *(f"UPDATE orders SET total = {n}.50 WHERE id = {n}" for n in range(10, 50)),  # noqa: S608
    *(f"UPDATE orders SET status = 'paid' WHERE id = {n}" for n in range(10, 50)),  # noqa: S608
]
# Other numbers, and texts that some program takes for one.
_NUMBERS: Final[tuple[Json, ...]] = (
    0, -1, 1, 10**6, 10**40, 1e300, -0.0, 0.1, float("nan"), float("inf"), "100", "1e2", "NaN", True, None,
    [100],
)  # fmt: skip
_DATES: Final = (
    "20260106", "2026-W02-2", "2026-1-6", "2026-01-06T00:00:00+14:00", "06/01/2026", "tomorrow", "+1",
    *(str(TODAY + timedelta(days=ahead)) for ahead in (-400, *range(-2, 33), 366)),
)  # fmt: skip
_LOOK_ALIKES: Final = str.maketrans(
    "aeopcxi/.@-", "\u0430\u0435\u043e\u0440\u0441\u0445\u0456\u2215\u2024\uff20\u2010"
)


@dataclass(slots=True)
class Meaning:
    """What calls do: facts, and how low and how high the numbers in them are."""

    facts: set[Fact] = field(default_factory=set)
    numbers: dict[str, tuple[Decimal, Decimal]] = field(default_factory=dict)

    def note(self, name: str, number: Decimal | None) -> None:
        if number is None:
            self.facts.add(("no number", name))
        else:
            low, high = self.numbers.get(name, (number, number))
            self.numbers[name] = min(low, number), max(high, number)

    def add(self, other: Meaning) -> None:
        self.facts |= other.facts
        for name, span in other.numbers.items():
            for number in span:
                self.note(name, number)

    def beyond(self, seen: Meaning) -> list[object]:
        """What nothing that was seen did."""
        numbers = [
            (name, low, high)
            for name, (low, high) in self.numbers.items()
            if name not in seen.numbers or low < seen.numbers[name][0] or high > seen.numbers[name][1]
        ]
        return [*sorted(self.facts - seen.facts), *numbers]


@dataclass(frozen=True, slots=True)
class MutantWorld:
    """The calls of one tool, and what they mean."""

    tool: str
    calls: Sequence[Call]
    judge: Callable[[Call, Meaning], None]
    reads: bool = False
    # What people decided; without it, these calls.
    learned: Sequence[HistoryProposal] = ()

    def meaning_of(self, arguments: Call) -> Meaning:
        meaning = Meaning(set(type_facts(arguments)))
        self.judge(arguments, meaning)
        return meaning

    def rules(self) -> list[Rule]:
        declared = {("files", self.tool)} if self.reads else set()
        decisions = self.learned or history(self.calls, tool=self.tool)
        found = suggest(decisions, now=START + 86_400.0, reading=declared, repeatable=declared)
        return [rule_of_json(rule_as_json(each.rule), "rule") for each in found]


@contextmanager
def mutant_worlds() -> Iterator[dict[str, MutantWorld]]:
    """One world for each kind of work, with its judge."""
    files = [
        f"src/app/{folder}/{name}{folder}.py" for folder in ("web", "db", "mail") for name in _NAMES[:16]
    ]
    urls = [f"https://api.corp.example/v1/rooms/{n}" for n in range(1000, 3000, 37)]
    hosts = ("https://docs.one.example", "https://www.two.example", "https://wiki.three.example")
    uses = Counter(word for command in COMMANDS for word in command.replace("'", "").split())
    fixed = {word for word, times in uses.items() if times >= 15}

    def mail(arguments: Call, meaning: Meaning) -> None:
        for each in arguments["to"]:
            meaning.facts |= address_facts(str(each))
        meaning.note("people", Decimal(len(arguments["to"])))
        meaning.facts |= text_facts(str(arguments["subject"]))

    def pay(arguments: Call, meaning: Meaning) -> None:
        meaning.facts |= {("payee", str(arguments["payee"]), str(arguments["currency"]))}
        meaning.facts.add(("invoice", str(arguments["invoice"])[:9], str(len(str(arguments["invoice"])))))
        meaning.note(str(arguments["payee"]), number_of(arguments["amount"]))

    def label(arguments: Call, meaning: Meaning) -> None:
        meaning.facts |= {("label", str(each)) for each in arguments["labels"]}
        meaning.facts.add(("project", str(arguments["ticket"]).rstrip("0123456789")))
        meaning.note("labels", Decimal(len(arguments["labels"])))

    def copy(arguments: Call, meaning: Meaning) -> None:
        source, target = path_facts(str(arguments["source"]), 4), path_facts(str(arguments["destination"]), 3)
        meaning.facts |= {
            ("pair", str(one), str(two)) for one in source for two in target if one[0] == two[0]
        }
        meaning.facts |= {each for each in source | target if each[0] not in ("folder", "ending")}

    def book(arguments: Call, meaning: Meaning) -> None:
        meaning.note("days", days_after(arguments["date"], TODAY))

    def edit(arguments: Call, meaning: Meaning) -> None:
        meaning.facts |= path_facts(str(arguments["path"]), 2)
        for name in ("old_string", "new_string"):
            # A file may say anything, but nothing that hides, and not much more than was seen.
            meaning.facts |= {
                each for each in text_facts(str(arguments[name]), lines=True) if each[0] != "says"
            }
            meaning.note("size", Decimal(max(1_000, len(str(arguments[name])))))

    def request(arguments: Call, meaning: Meaning) -> None:
        # Whoever may read a page may read others of that host, by decision; what changes something is exact.
        method, url = str(arguments["method"]), str(arguments["url"])
        meaning.facts |= {(method, *each) for each in web.seen(url, pages=method == "GET")}
        body = arguments.get("body")
        if isinstance(body, dict):
            meaning.facts |= text_facts(str(body.get("topic"))) | {
                ("kind", str(float(number_of(body.get("type")) or -1)))
            }

    def diff(path: str) -> str:
        return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"

    def booking(days: int) -> Call:
        return {"date": str(TODAY + timedelta(days))}

    # No date comes twice, or they would be learned as a list.
    ahead = [7 * number % 29 + 1 for number in range(1, 19)]
    web = UrlJudge()
    with tempfile.TemporaryDirectory() as scratch:
        bash = BashJudge(Path(scratch), _PROGRAMS, fixed)

        def world(
            tool: str, calls: Sequence[Call], judge: Callable[[Call], set[Fact]], reads: bool = False
        ) -> MutantWorld:
            return MutantWorld(tool, calls, lambda given, meaning: meaning.facts.update(judge(given)), reads)

        try:
            yield {
                "shell": world(
                    "bash", [{"command": text} for text in COMMANDS], lambda a: bash.seen(a["command"])
                ),
                "sql": world(
                    "run_sql", [{"query": text} for text in STATEMENTS], lambda a: sql_facts(a["query"])
                ),
                "pages": world(
                    "fetch", [{"url": f"{host}/{name}/index.html"} for host in hosts for name in _NAMES],
                    lambda a: web.seen(a["url"], pages=True), reads=True,
                ),
                "requests": MutantWorld("http_request", [
                    *({"method": "GET", "url": url} for url in urls),
                    *({"method": "POST", "url": url, "body": {"topic": f"About {name}", "type": 1 + at % 2}}
                      for at, (url, name) in enumerate(zip(urls, _NAMES, strict=False))),
                ], request),
                "reads": world(
                    "read_file", [{"path": f"/srv/app/{path}"} for path in files],
                    lambda a: path_facts(a["path"], 4), reads=True,
                ),
                "edits": MutantWorld("edit_file", [
                    {"path": path, "old_string": f"x = {n}\n# {path}", "new_string": f"z = {n}\n# {path}"}
                    for n, path in enumerate(files)
                ], edit),
                "patches": world(
                    "apply_patch", [{"patch": diff(path)} for path in files],
                    lambda a: patch_facts(a["patch"], 2),
                ),
                "pairs": MutantWorld("copy_file", [
                    {"source": f"/srv/app/{top}/{name}{at}.md", "destination": f"/backup/{top}/{name}{at}.md"}
                    for at, top in enumerate(_TOPS) for name in _NAMES[:24]
                ], copy),
                "mail": MutantWorld("send_email", [
                    {"to": [f"{name}@corp.example", f"{name}x@corp.example"][: 1 + at % 2],
                     "subject": f"Plan of {name} for May"}
                    for at, name in enumerate(_NAMES)
                ], mail),
                "payments": MutantWorld("pay_invoice", [
                    {"payee": payee, "amount": usual + n * usual / 100, "currency": "EUR",
                     "invoice": f"INV-2026-{n * 7 + usual:05}"}
                    for n in range(16) for payee, usual in _PAYEES.items()
                ], pay),
                "lists": MutantWorld("add_labels", [
                    {"ticket": f"WEB-{100 + 7 * n}", "labels": [*each]} for n, each in enumerate(_LABELS * 12)
                ], label),
                "days": MutantWorld("book", [booking(days) for days in ahead], book, learned=[
                    decided(call(booking(days - ago), tool="book", at=START - 86_400.0 * ago), approved=True)
                    for ago, days in enumerate(ahead, start=1)
                ]),
            }  # fmt: skip
        finally:
            web.close()


def _writings(text: str) -> tuple[str, ...]:
    """The same text as others write it."""
    return (
        quote(text, safe="", errors="replace"), "".join(f"%{ord(sign):02x}" for sign in text),
        text.translate(_LOOK_ALIKES),
        "".join(chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in text),
        "\u200b".join(text), "".join(f"&#{ord(sign)};" for sign in text), text.encode(errors="replace").hex(),
        base64.b64encode(text.encode(errors="replace")).decode(), f'"{text}"', f"'{text}'", f"{text}\n{text}",
        text.replace(" ", "/**/"), text.replace(" ", "\t"),
        text.replace("+++ b/", "+++ "), text.replace("+++ b/", "+++ ").replace("--- a/", "--- "),
        f"{text}\ndiff --git a/setup.py b/setup.py\nnew file mode 100644\nindex 0000000..e69de29\n",
        text.replace("/", "//"), text.replace("/", "\\"),
        text + "a" * 10_000, text.encode("utf-16", "replace").decode("latin-1"), f" {text} ", text.swapcase(),
    )  # fmt: skip


def _changed(rng: random.Random, value: Json, other: Json, known: Sequence[str]) -> Json:
    """One value, otherwise."""
    if isinstance(value, list) and value:
        at, more = rng.randrange(len(value)), other if isinstance(other, list) and other else value
        match rng.randrange(4):
            case 0:
                return [*value, *more][: rng.randint(1, 6)]
            case 1:
                return [*value[:at], *value[at + 1 :]]
            case 2:
                return rng.choice(
                    ([value], [*value, None], {"0": value[0]}, value[0], [*value, *value, *value])
                )
        return [*value[:at], _changed(rng, value[at], rng.choice(more), known), *value[at + 1 :]]
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice([*value])
        return value | {
            key: _changed(rng, value[key], other.get(key) if isinstance(other, dict) else None, known)
        }
    if isinstance(value, int | float):
        return rng.choice(
            (*_NUMBERS, other, str(value), value * rng.choice((0.5, 0.99, 1.01, 2, 100)), value + 1)
        )
    text = str(value)
    if (way := rng.random()) < 0.25:
        return other
    if way < 0.75:
        return probe_of(rng, text, rng.choice((str(other), *known)))
    if way < 0.85:
        return rng.choice((*known, *_DATES))
    return rng.choice(_writings(text)) if way < 0.97 else odd_value(rng, text)


def mutant_of(rng: random.Random, calls: Sequence[Call], known: Sequence[str]) -> Call:
    """A call of the world with something else in one or two places."""
    arguments, other = deepcopy(rng.choice(calls)), rng.choice(calls)
    for _ in range(rng.choice((1, 1, 2))):
        key = rng.choice([*arguments])
        arguments[key] = _changed(rng, arguments[key], other.get(key), known)
    if rng.random() < 0.02:
        arguments[rng.choice(("force", "Path", "cc", "__proto__", ""))] = rng.choice(known or ["x"])
    return arguments


def _crafted(rng: random.Random, rules: Sequence[Rule], calls: Sequence[Call]) -> Call:
    """What somebody makes who reads the rules: a text at the edge of a template, with a trick in it."""
    rule = rng.choice(rules)
    arguments = deepcopy(rng.choice(calls))
    for path, pattern in rng.sample([*rule.values.items()], min(len(rule.values), rng.choice((1, 2)))):
        text = rng.choice([*edge_texts(pattern), *outside_texts(pattern)])
        at = rng.randint(0, len(text))
        made = rng.choice((text, text[:at] + rng.choice(_TRICKS) + text[at:], rng.choice(_writings(text))))
        place = arguments
        for key in path[:-1]:
            place = place.get(key, {}) if isinstance(place, dict) and not key.startswith("[") else place
        if path[-1].startswith("["):
            arguments[path[0]] = [made] * rng.randint(1, 3)
        elif isinstance(place, dict):
            place[path[-1]] = made
    return arguments


def judge_world(
    world: MutantWorld, count: int, rng: random.Random
) -> tuple[int, int, list[tuple[Call, list[object]]]]:
    """How many mutants were approved, how many of them differ, and which do more, with what that is."""
    rules = world.rules()
    assert rules, world.tool
    seen = Meaning()
    for arguments in world.calls:
        seen.add(world.meaning_of(arguments))
    patterns = [pattern for rule in rules for pattern in rule.values.values()]
    known = [text for pattern in patterns for text in (*edge_texts(pattern), *outside_texts(pattern))]
    judged = {repr(each) for each in world.calls}
    approved, different, outside = 0, 0, []
    for number in range(count):
        crafted = number % 4 == 3 and patterns
        arguments = _crafted(rng, rules, world.calls) if crafted else mutant_of(rng, world.calls, known)
        if evaluate(rules, call(arguments, tool=world.tool), START, draw=1.0).decision != "approve":
            continue
        approved += 1
        if repr(arguments) in judged:
            continue
        judged.add(repr(arguments))
        different += 1
        if more := world.meaning_of(arguments).beyond(seen):
            outside.append((arguments, more))
    return approved, different, outside


def run_mutants(count: int, seed: int) -> str:
    """Judge mutants in all worlds; raises AssertionError if one does more than what was approved."""
    counts, outside = [], []
    with mutant_worlds() as worlds:
        for name, world in worlds.items():
            approved, different, more = judge_world(
                world, count // len(worlds), random.Random(f"{seed} {name}")
            )
            assert different, name
            counts.append(f"{name} {approved:,}/{different:,}")
            outside += [(name, *each) for each in more]
    assert not outside, (len(outside), outside[:20])
    return (
        f"{count:,} mutants, approved/other than seen: {', '.join(counts)}; none does more than was approved"
    )
