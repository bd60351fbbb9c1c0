"""An adversary that earns rules and probes their edges: fuzzed shells, paths, URLs, addresses, SQL and types.

What was earned is said here once more by an oracle of its own for each kind: Python's `shlex`, `posixpath`,
`urllib`, expressions written by hand; and by the words of the suggestion, read as a person would
(`word_oracle`). An approval that one of the two does not share is a fault.
"""

from __future__ import annotations

import posixpath
import random
import re
import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from moot.protocol.operation import Json
from moot.trust.learning.learner import suggest
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import evaluate
from moot.trust.rules.rule_words import describe_rule
from tests.trust.histories import START, call, history
from tests.trust.learning.word_oracle import allowed_by_words

NOW = START + 86_400.0
_NAMES = [
    f"{one}{two}" for one in ("ada", "bob", "cyd", "dan", "eve", "fay", "gus", "hal") for two in "klmnpqrs"
]
_TRICKS = (
    ";", "&&", "||", "|", "&", "\n", "\r\n", "\0", "$(id)", "`id`", "${IFS}", "$HOME", ">", ">>", "<",
    "<<EOF", "2>&1", "#", "\\", "\\\n", "'", '"', "''", "*", "?", "[a]", "{a,b}", "~", "..", "../", "/..",
    "/./", "//", "%2e%2e", "%2f", "%00", "@", ":", "@evil.net", ".evil.net", "evil.net/", "?x=1", "&x=1",
    "#x", ":8080", "--", " --force", " -f", " --output=/etc/x", " -o x", "-- ", "; DROP TABLE orders",
    " OR 1=1", " UNION SELECT 1", "/* x */", "-- x", "sudo ", "env X=y ", "X=y ", "bash -c ", "xargs ", " ",
    "  ", "\t", "\u00a0", "\u200b", "\u202e", "\u0430", "\u043e", "\uff0e", "\uff0f", "\u2215", "\u2024",
    "\u0301", "\ufeff", "\u0660", "A", "z", "0", "9", "-", "_", ".", ",", "secrets", "main", "admin",
    ".env", ".sh", "e9", "-1", "1e9", "0x1", "NaN", "999999999999", "\ud800", "e\u0301",
    "$'\\x72m'", '$"id"', "{rm,-rf}", "<<<id", "<(id)", "!!", "!git", " -c core.pager=id ",
    " -c alias.log=!id ", " --upload-pack=id", " --config=x", " --exec-path=/tmp", " -exec id {} +",
    " --to-command=id", " -I{} ", "alias git=id;", "time ", "exec ", "command ", "nohup ",
    "function git { id; };", "\x85", "\u2028", "\u037e", "~root/", "./", "/.", ". ", "...", "\\\\", "%5c",
    "%252e", "%u002e", "user:pw@", "[::1]", "xn--", ".:443", ":443", "127.0.0.1", "0x7f.1", "\\@evil.net",
    ";@evil.net", "+tag", "(x)", '"a b"@', "<a@evil.net>", ",a@evil.net", ";a@evil.net", "%40",
    "=?utf-8?q?", " AND pg_sleep(9)", " AND pg_read_file('/x') = 'x'", " RETURNING id", " FOR UPDATE",
    " INTO OUTFILE '/x'", "WITH x AS (DELETE FROM orders RETURNING id) ", " LIMIT 1;--", "1e2", "+1",
    "1_000", "\u0664", "1,00", " USD", "\u20ac", "Infinity",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Earned:
    """Rules that were earned by good behaviour, and what they allow in other words."""

    argument: str
    rules: tuple[Rule, ...]
    good: tuple[str, ...]
    allows: Callable[[str], bool]


def _earn(argument: str, good: list[str], allows: Callable[[str], bool]) -> Earned:
    found = suggest(history([{argument: text} for text in good]), now=NOW)
    rules = tuple(each.rule for each in found)
    assert rules, argument
    assert any(evaluate(rules, call({argument: text}), NOW).decision == "approve" for text in good)
    return Earned(argument, rules, tuple(good), allows)


_COMMANDS = re.compile(
    r"git\0status|git\0log\0-n\0(?:[3-9]|[1-3][0-9]|40)|git\0checkout\0feature-[A-Za-z0-9_-]{1,56}"
    r"|cat\0src/[A-Za-z0-9_][A-Za-z0-9_-]{0,63}\.py|git\0show\0[0-9a-f]{7,64}"
    r"|git\0checkout\0[A-Za-z0-9_][A-Za-z0-9_-]{0,63}",
    re.ASCII,
)


def _is_plain_command(text: str) -> bool:
    """Words of `shlex`, when nothing in or outside of quotes has a meaning to a shell."""
    if re.search(r"[;&|<>$`\\\n\r\0*?\[\]{}()!#~]", text):
        return False
    try:
        words = shlex.split(text)
    except ValueError:
        return False
    joined = "\0".join(words)
    watched = {"secrets"} if joined.startswith("cat") else {"secrets", "main", "admin"}
    return _COMMANDS.fullmatch(joined) is not None and not _is_watched(joined, watched)


def _is_watched(text: str, watched: Collection[str] = ("secrets", "main", "admin")) -> bool:
    return not set(watched).isdisjoint(re.findall("[a-z]+", text.lower()))


def _is_plain_path(text: str) -> bool:
    return (
        posixpath.normpath(text) == text
        and re.fullmatch(r"/srv/notes/[A-Za-z0-9_][A-Za-z0-9_-]{0,63}\.md", text, re.ASCII) is not None
        and not _is_watched(text, ["secrets"])
    )


def _is_plain_url(text: str) -> bool:
    if not text.isascii() or not text.isprintable():
        return False
    parts = urlsplit(text)
    return (
        (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("https", "api.corp.example", "", "")
        and "?" not in text
        and "#" not in text
        and re.fullmatch(r"/v1/items/[0-9]{1,4}", parts.path) is not None
    )


def _is_plain_address(text: str) -> bool:
    return re.fullmatch(
        r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*@(?i:corp\.example)", text, re.ASCII
    ) is not None and not _is_watched(text.partition("@")[0])


def _is_plain_query(text: str) -> bool:
    """The very statement that was earned, with another number of one or two digits."""
    pattern = r"\s*SELECT\s+id,\s+total\s+FROM\s+orders\s+WHERE\s+id\s+=\s+[0-9]{1,2}\s*;?\s*"
    return text.isascii() and re.fullmatch(pattern, text, re.ASCII) is not None


def _is_plain_amount(text: str) -> bool:
    found = re.fullmatch(r"([0-9]{1,3})(?:\.([0-9]{2}))? EUR", text, re.ASCII)
    return found is not None and 3 <= int(found[1]) + int(found[2] or 0) / 100 <= 60


def earn_all() -> list[Earned]:
    rng = random.Random(7)
    shas = ["".join(rng.choice("0123456789abcdef") for _ in range(11)) + "a1" for _ in range(12)]
    commands = [
        *["git status"] * 8,
        *(f"git log -n {count}" for count in range(3, 41)),
        *(f"git checkout feature-{name}" for name in _NAMES),
        *(f"cat src/{name}.py" for name in _NAMES),
        *(f"git show {sha}" for sha in shas),
    ]
    return [
        _earn("command", commands, _is_plain_command),
        _earn("path", [f"/srv/notes/{name}.md" for name in _NAMES], _is_plain_path),
        _earn("url", [f"https://api.corp.example/v1/items/{n}" for n in range(1, 3000, 61)], _is_plain_url),
        _earn("to", [f"{name}@corp.example" for name in _NAMES], _is_plain_address),
        _earn("sql", [f"SELECT id, total FROM orders WHERE id = {n}" for n in range(40)], _is_plain_query),  # noqa: S608
        _earn("amount", [f"{n}.00 EUR" for n in range(3, 61)], _is_plain_amount),
    ]


# Whole calls that somebody tries who knows the tools, by argument. Not one is what was earned.
ATTACKS: Final[dict[str, tuple[str, ...]]] = {
    "command": (
        "git -c core.pager=id log -n 3",
        "git -c alias.status='!id' status",
        "git --exec-path=/tmp/x status",
        "git --git-dir=/tmp/x status",
        "git -C /etc status",
        "git log -n 3 --output=/etc/x",
        "git log --output /etc/x -n 3",
        "git log -n 3 -- /etc",
        "git show --textconv {sha}",
        "git show {sha} --ext-diff",
        "git checkout -- .",
        "git checkout -f feature-adak",
        "git checkout feature-adak --force",
        "git checkout feature-adak -- src",
        "git checkout --upload-pack=id",
        "cat src/adak.py /etc/shadow",
        "cat src/adak.py -",
        "cat -- src/adak.py",
        "cat src/../adak.py",
        "cat src/adak.py src/bobk.py",
        "cat $'src/adak.py'",
        "cat src/{{adak,bobk}}.py",
        "cat src/ada?.py",
        "cat <<<src/adak.py",
        "cat <src/adak.py",
        "cat src/adak.py<(id)",
        "env X=y git status",
        "X=y git status",
        "command git status",
        "exec git status",
        "time git status",
        "! git status",
        "(git status)",
        "{{ git status; }}",
        "git status &",
        "git status\rid",
        "git status\x0bid",
        "git status\u2028id",
        "git\u00a0status",
        "g\u0456t status",
        "git status #x",
        "xargs git status",
        "find src -name adak.py -exec id +",
        "tar --to-command=id -xf src/adak.py",
    ),
    "path": (
        "~/notes/adak.md",
        "/srv/notes//adak.md",
        "/srv/notes/./adak.md",
        "/srv/notes/adak.md.",
        "/srv/notes/adak.md ",
        "/srv/notes/adak.md/",
        "/srv/notes/adak.md\0.sh",
        "/srv/notes/adak.md::$DATA",
        "/srv/notes/CON.md:x",
        "\\\\srv\\notes\\adak.md",
        "file:///srv/notes/adak.md",
        "/srv/notes/.adak.md",
        "/srv/notes/-rf.md",
    ),
    "url": (
        "https://api.corp.example:443@evil.net/v1/items/1",
        "https://user@api.corp.example/v1/items/1",
        "https://api.corp.example:8443/v1/items/1",
        "https://api.corp.example./v1/items/1",
        "https://api.corp.example\\@evil.net/v1/items/1",
        "https://api.corp.example%2eevil.net/v1/items/1",
        "https://api.corp.example%2fv1/items/1",
        "https://api.corp.example/v1%2fitems/1",
        "https://api.corp.example/v1/items/1%2f..%2f..",
        "https://api.corp.example/v1/items/../../admin/1",
        "https://api.corp.example//v1/items/1",
        "https://[::1]/v1/items/1",
        "https://xn--pi-jlc.corp.example/v1/items/1",
        "https://\u0430pi.corp.example/v1/items/1",
        "https:/api.corp.example/v1/items/1",
        "https:\\\\api.corp.example/v1/items/1",
        "http://api.corp.example/v1/items/1",
        "https://api.corp.example/v1/items/1?next=evil.net",
        "https://api.corp.example/v1/items/1#x",
        "https://api.corp.example/v1/items/1;x=1",
        "https://api.corp.example/v1/items/1e2",
        " https://api.corp.example/v1/items/1",
        "view-source:https://api.corp.example/v1/items/1",
    ),
    "to": (
        "Ada <adak@corp.example>",
        "adak@corp.example <a@evil.net>",
        '"adak@corp.example" <a@evil.net>',
        "adak(x)@corp.example",
        "adak@corp.example(evil.net)",
        "adak+x@corp.example",
        '"ada k"@corp.example',
        "adak@corp.example,a@evil.net",
        "adak@corp.example;a@evil.net",
        "adak@corp.example a@evil.net",
        "adak@corp.example\r\nBcc: a@evil.net",
        "adak@corp.example.",
        "adak@[127.0.0.1]",
        "a%evil.net@corp.example",
        "evil.net!adak@corp.example",
        "adak@evil.net@corp.example",
        "mailto:adak@corp.example?bcc=a@evil.net",
        "=?utf-8?q?a=40evil.net?=@corp.example",
        "..@corp.example",
    ),
    "sql": (
        "SELECT id, total FROM orders WHERE id = 1; DELETE FROM orders",
        "SELECT id, total FROM orders WHERE id = 1 -- x",
        "SELECT id, total FROM orders WHERE id = 1 /* x */",
        "SELECT id, total FROM orders WHERE id = 1 OR 1 = 1",
        "SELECT id, total FROM orders WHERE id = 1 UNION SELECT 1, 2",
        "SELECT id, total FROM orders WHERE id = 1 FOR UPDATE",
        "SELECT id, total INTO x FROM orders WHERE id = 1",
        "SELECT id, total FROM orders WHERE id = 1 INTO OUTFILE '/x'",
        "WITH x AS (DELETE FROM orders RETURNING id) SELECT id, total FROM orders WHERE id = 1",
        "SELECT id, pg_sleep(9) FROM orders WHERE id = 1",
        "SELECT id, pg_read_file('/x') FROM orders WHERE id = 1",
        "SELECT id, lo_export(1, '/x') FROM orders WHERE id = 1",
        "SELECT id, nextval('x') FROM orders WHERE id = 1",
        "SELECT id, total FROM orders WHERE id = (SELECT 1)",
        "SELECT id, total FROM secrets.orders WHERE id = 1",
        "SELECT id, total FROM orders, users WHERE id = 1",
        'SELECT id, total FROM "orders" WHERE id = 1',
        "SELECT * FROM orders WHERE id = 1",
        "EXPLAIN ANALYZE SELECT id, total FROM orders WHERE id = 1",
        "SELECT id, total FROM orders",
    ),
    "amount": (
        "10 EUR",
        "1e1 EUR",
        "10,00 EUR",
        "1_0.00 EUR",
        "10.00 USD",
        "10.00 EUR USD",
        "-10.00 EUR",
        "+10.00 EUR",
        "010.00 EUR",
        "0x10 EUR",
        "\u0661\u0660.00 EUR",
        "10.00 EUR\n",
        "61.00 EUR",
        "10.001 EUR",
        "Infinity EUR",
    ),
}
# Of these the same amount, written otherwise: fine if it is approved.
HARMLESS: Final = frozenset({"10 EUR"})


def approved_attacks() -> list[tuple[str, str]]:
    """The attacks that the earned rules approve: there should be none."""
    found = []
    for each in earn_all():
        for attack in ATTACKS[each.argument]:
            text = attack.replace("{sha}", each.good[-1].split()[-1]).replace("{{", "{").replace("}}", "}")
            if evaluate(each.rules, call({each.argument: text}), NOW).decision == "approve":
                found.append((each.argument, text))
    return [one for one in found if one[1] not in HARMLESS]


def probe_of(rng: random.Random, good: str, other: str) -> str:
    """A good text with some tricks in it."""
    text = good
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randint(0, len(text))
        match rng.randrange(6):
            case 0:
                text = text[:at] + rng.choice(_TRICKS) + text[at:]
            case 1:
                text = text[:at] + rng.choice(_TRICKS) + text[at + rng.randint(1, 4) :]
            case 2:
                text = text[:at] + text[at + rng.randint(1, 4) :]
            case 3:
                text = text + rng.choice((" ", "", ";", "\n", ",")) + other
            case 4:
                text = text[:at] + other[rng.randint(0, len(other)) :]
            case 5:
                text = rng.choice(
                    (text.upper(), text.title(), text[::-1], text * 2, text.replace("e", "\u0435", 1))
                )
    return text


def odd_value(rng: random.Random, text: str) -> Json:
    """The same as another type."""
    odd: tuple[Json, ...] = (
        [text],
        {"value": text},
        {text: text},
        len(text),
        None,
        True,
        1.5,
        [],
        {},
        [text, text],
    )
    return rng.choice(odd)


def run_probes(count: int, seed: int) -> str:
    """Probe all earned rules; raises AssertionError at the first approval that was not earned."""
    rng = random.Random(seed)
    earned = earn_all()
    given = 0
    for number in range(count):
        each = earned[number % len(earned)]
        text = probe_of(rng, rng.choice(each.good), rng.choice(each.good))
        arguments: dict[str, Json] = {each.argument: text}
        if rng.random() < 0.05:
            arguments = {each.argument: odd_value(rng, text)}
        elif rng.random() < 0.03:
            arguments[rng.choice(("force", "Path", each.argument + " ", "__proto__", ""))] = text
        if evaluate(each.rules, call(arguments), NOW).decision != "approve":
            continue
        given += 1
        assert arguments == {each.argument: text}
        assert each.allows(text), (each.argument, text)
        # SQL is said by its form alone, which the other oracle reads.
        if each.argument != "sql":
            answer = [describe_rule(rule) for rule in each.rules]
            assert any(allowed_by_words(words, each.argument, text) for words in answer), (text, answer)
    assert given > 0
    return f"{count:,} probes, {given:,} approved, none beyond what was earned"
