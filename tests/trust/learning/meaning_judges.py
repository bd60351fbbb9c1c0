"""What a call would really do, as programs say that are not ours: bash, SQLite, git, `urllib`, node, `email`.

Each judge gives facts about one value: those that may vary (a name, a number) are left out of them, and all
others must have been seen in an approved call. Numbers are facts of their own: no lower or higher than seen.
"""

from __future__ import annotations

import json
import os.path
import re
import sqlite3
import subprocess
import tempfile
import unicodedata
from collections.abc import Collection, Iterator
from datetime import date
from decimal import Decimal, InvalidOperation
from email import message_from_string
from email.utils import getaddresses
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from bench.automation_worlds import _CI

from moot.protocol.operation import Json

Fact = tuple[str, ...]
_TABLES: Final = (
    "CREATE TABLE orders (id INTEGER, total REAL, owner TEXT, status TEXT, card TEXT);"
    "CREATE TABLE users (name, password)"
)
# Constants are another opcode by their size alone.
_CONSTANTS: Final = {"Int64": "Integer", "Real": "Integer"}
_PRIVATE: Final = re.compile(r"(?i)(?<![a-z])(?:secrets?|passwords?|credentials?)(?![a-z])|\.env|\.pem")
_ACTS: Final = re.compile(r"(?i)/(?:admin|delete|remove|logout|cancel)(?:/|$)")
_SAYS: Final = {
    "link": re.compile(r"(?i)[a-z]://|\bwww\."),
    "address": re.compile(r"\w@\w"),
    "key": re.compile(r"\b(?=\w*[0-9])(?=\w*[A-Za-z])\w{20,}\b|(?:[0-9][ -]?){13,}"),
    "code": re.compile(r"\$\(|`|<[a-z/!]"),
}
_NODE: Final = """require("readline").createInterface({input: process.stdin}).on("line", (line) => {
  let said = null;
  try {
    const url = new URL(JSON.parse(line));
    said = [url.protocol, url.username + url.password, url.host, url.pathname,
      [...url.searchParams.keys()].join(), url.hash ? "part" : ""];
  } catch {}
  console.log(JSON.stringify(said));
});"""


class BashJudge:
    """What a command does: each program that runs, its words but for names and numbers, files it writes."""

    def __init__(self, folder: Path, programs: Collection[str], fixed: Collection[str]) -> None:
        self._folder, self._fixed = folder, frozenset(fixed)
        bin = folder / "bin"
        bin.mkdir()
        for name in programs:
            (bin / name).write_text(
                "#!/bin/sh\n" + f'printf "%s\\n" "{name}" "$@" "" >> "$LOG"\ncat > /dev/null < /dev/null\n'
            )
            (bin / name).chmod(0o755)

    def seen(self, command: str) -> set[Fact]:
        # What is written elsewhere cannot be seen in the folder; between single quotes nothing is written.
        outside = re.sub("'[^']*'", "''", command)
        if "\0" in command or re.search(r">\s*(?:[/~]|\S*\.\.)", outside):
            return {("writes elsewhere", command)}
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            place = Path(scratch)
            for name in ("src", "out"):
                (place / name).mkdir()
            environment = {"PATH": str(self._folder / "bin"), "LOG": str(place / "log"), "HOME": scratch}
            subprocess.run(  # noqa: S603
                ["/bin/bash", "-c", command], cwd=place, env=environment, capture_output=True, check=False
            )
            log = (place / "log").read_text() if (place / "log").exists() else ""
            runs = {self._shapes(run.split("\n")) for run in log.split("\n\n") if run}
            written = [path for path in place.rglob("*") if path.is_file() and path.name != "log"]
            return runs | {("writes", path.parent.name, path.suffix) for path in written}

    def _shapes(self, words: list[str]) -> Fact:
        """The words without what may vary; a message is one word, whatever it says."""
        return tuple(
            "message" if before == "--message" else self._shape(word)
            for before, word in zip(["", *words], words, strict=False)
        )

    def _shape(self, word: str) -> str:
        """A word without what may vary: names and numbers; a folder and an ending stay."""
        if word.startswith("-") or word in self._fixed:
            return word
        folder, slash, name = word.rpartition("/")
        stem, dot, ending = name.rpartition(".")
        is_name = (stem if dot else name).replace("_", "").replace("-", "").replace(" ", "").isalnum()
        return f"{folder}{slash}{'x' if is_name else stem}{dot}{ending if dot else ''}"


def sql_facts(statement: str) -> set[Fact]:
    """What a statement touches, as SQLite's authorizer is asked, and the program that SQLite makes of it."""
    found: set[Fact] = set()

    def note(action: int, one: str | None, two: str | None, *_: str | None) -> int:
        found.add((str(action), one or "", two or ""))
        return sqlite3.SQLITE_OK

    database = sqlite3.connect(":memory:")
    try:
        database.executescript(_TABLES)
        database.set_authorizer(note)
        database.execute(statement)
        program = database.execute(f"EXPLAIN {statement}").fetchall()
        found.add(("program", *(_CONSTANTS.get(row[1], row[1]) for row in program)))
    except sqlite3.OperationalError:
        return set()  # SQLite does nothing at all.
    except (sqlite3.Error, sqlite3.Warning) as fault:
        return {("refused", type(fault).__name__)}
    finally:
        database.close()
    return found


class UrlJudge:
    """Where a request goes, as Python's `urllib` and node's `URL` read it; `pages`: anywhere below a host."""

    def __init__(self) -> None:
        self._node = subprocess.Popen(  # noqa: S603
            ["node", "-e", _NODE],  # noqa: S607
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self._node.communicate()

    def seen(self, text: str, *, pages: bool) -> set[Fact]:
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.write(json.dumps(text) + "\n")
        self._node.stdin.flush()
        said = json.loads(self._node.stdout.readline())
        found = {self._fact("node", said, pages=pages)} if said else set()
        try:
            url = urlsplit(text)
            keys = ",".join(key for key, _ in parse_qsl(url.query, keep_blank_values=True))
            own = [url.scheme, url.netloc.rpartition("@")[0], url.netloc.rpartition("@")[2], url.path, keys]
            found.add(self._fact("urllib", [*own, "part" if url.fragment else ""], pages=pages))
        except ValueError:
            pass
        return found

    @staticmethod
    def _fact(who: str, parts: list[str], *, pages: bool) -> Fact:
        scheme, user, host, path, keys, part = parts
        if not pages:
            return (
                who,
                scheme,
                user,
                host,
                re.sub(r"(?<=/)[0-9]{1,12}(?=/|$)", "9", path, flags=re.ASCII),
                keys,
                part,
            )
        plain = unquote(path)
        act = "acts" if _ACTS.search(plain) or os.path.normpath(plain) != plain.rstrip("/") else ""
        return who, scheme, user, host, act, keys


def path_facts(text: str, depth: int) -> set[Fact]:
    """A path as `os.path` reads it once its escapes and look-alikes are taken for what they may become."""
    plain = unicodedata.normalize("NFKC", unquote(unquote(text))).replace("\\", "/")
    normal = os.path.normpath(plain)
    parts = normal.split("/")
    found: set[Fact] = {("folder", *parts[: min(depth, len(parts) - 1)])}
    found.add(("ending", os.path.splitext(normal)[1]))
    if _CI.search(normal) or _PRIVATE.search(normal):
        found.add(("runs or is private", normal))
    if plain != text or text != normal or os.path.expanduser(text) != text or not text.isprintable():
        found.add(("written", ascii(text)))
    if any(part.startswith((".", "-")) for part in parts):
        found.add(("hidden", normal))
    return found


def patch_facts(text: str, depth: int) -> set[Fact]:
    """The files that git would change, and what else it says of them."""
    found: set[Fact] = set()
    for asked in ("--numstat", "--summary"):
        done = subprocess.run(  # noqa: S603
            ["git", "apply", asked, "-z", "-"],  # noqa: S607
            input=text.encode(errors="surrogatepass"), capture_output=True, check=False, cwd="/",
        )  # fmt: skip
        for line in filter(
            None, done.stdout.decode(errors="replace").split("\0" if "num" in asked else "\n")
        ):
            if asked == "--summary":
                found.add(("summary", line))
            else:
                found |= path_facts(line.split("\t")[2], depth)
    return found


def address_facts(text: str) -> set[Fact]:
    """Whom a mail goes to, as Python's `email` reads it, and the headers that it would have."""
    headers = message_from_string(f"To: {text}\n\n").keys()
    people = [address for _, address in getaddresses([text])]
    return {("domain", each.rpartition("@")[2].lower()) for each in people} | {
        ("headers", *headers), ("addresses", str(len(people))), ("ascii", str(text.isascii())),
    }  # fmt: skip


def text_facts(text: str, *, lines: bool = False) -> set[Fact]:
    """What words must not bring along: links, keys, addresses, code, further headers, what is invisible."""
    dateless = re.sub(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]", " day ", text)
    found: set[Fact] = {("says", name) for name, pattern in _SAYS.items() if pattern.search(dateless)}
    if any(unicodedata.category(sign)[0] == "C" and not (lines and sign in "\n\t") for sign in text):
        found.add(("invisible",))
    if not lines and [*message_from_string(f"Subject: {text}\n\n").keys()] != ["Subject"]:
        found.add(("headers",))
    return found


def number_of(value: Json) -> Decimal | None:
    """An amount, if it is a finite number."""
    try:
        number = (
            Decimal(str(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None
        )
    except InvalidOperation:
        return None
    return number if number is not None and number.is_finite() else None


def days_after(value: Json, today: date) -> Decimal | None:
    """How many days a date is after today, if it is written as dates are."""
    try:
        found = date.fromisoformat(str(value))
    except ValueError:
        return None
    return Decimal((found - today).days) if found.isoformat() == value else None


def type_facts(value: Json, at: Fact = ()) -> Iterator[Fact]:
    """Where something is, and of which type: another key and a text for a number are facts too."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    yield ("type", *at, "number" if is_number else type(value).__name__)
    inner = value.items() if isinstance(value, dict) else []
    for key, each in [*inner, *(("[]", each) for each in (value if isinstance(value, list) else []))]:
        yield from type_facts(each, (*at, key))
