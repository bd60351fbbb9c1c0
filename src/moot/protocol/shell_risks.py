"""What a command line, a statement or a path does that deserves a second look.

A command line is read into simple commands, as a shell reads it: quotes, comments, chains, pipes,
substitutions, redirections, and programs that start others (`sudo`, `env`, `xargs`, `sh -c`, `find -exec`).
Then each program is looked up in a table by its name and its arguments. Nothing is expanded. A statement is
read without its comments and texts. What cannot be read to its end is said to be so.

The console has the same in `views/proposals/shell-risks.js`: the tables are compared by a test, and one table
of cases tests both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

from moot.protocol.risk_table import (
    COMMANDS,
    DATABASE_CLIENTS,
    SECRET_PATHS,
    SELF_STARTING_PATHS,
    SQL_START,
    STATEMENTS,
    SYSTEM_PATHS,
    WHOLE,
)

# More is not read; the call itself shows it.
MAX_COMMAND_CHARS: Final = 20_000
_MAX_COMMANDS: Final = 200
# Of one command or statement: no expression looks far ahead in a long one.
_MAX_LINE_CHARS: Final = 4_000
_MAX_DEPTH: Final = 4

UNREADABLE: Final = "cannot be read to its end"

_WRITERS: Final = (
    r"(?i)write|save|edit|create|append|replace|update|put|patch|move|copy|rename|upload|insert|delete|remove"
)
_WRITING_PROGRAMS: Final = frozenset(
    {"cp", "mv", "tee", "ln", "install", "dd", "rsync", "scp", "truncate", "touch", "sponge"}
)
_STARTERS: Final = frozenset(
    {
        "sudo",
        "doas",
        "env",
        "nohup",
        "time",
        "nice",
        "ionice",
        "xargs",
        "parallel",
        "exec",
        "command",
        "builtin",
        "timeout",
        "busybox",
        "stdbuf",
        "setsid",
        "watch",
        "strace",
        "unbuffer",
        "then",
        "do",
        "else",
        "if",
        "while",
        "until",
        "!",
        "coproc",
        "wsl",
        "rtk",
    }
)
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "cmd", "cmd.exe"})
_HARMLESS_DEVICES: Final = frozenset({"/dev/null", "/dev/stderr", "/dev/stdout", "/dev/tty"})


class SimpleCommand(NamedTuple):
    """One program with its arguments, and the files it is redirected to."""

    words: list[str]
    targets: list[str]


class UnreadableCommand(Exception):
    """A quote or a bracket without its end."""


def read_commands(text: str) -> list[SimpleCommand]:
    """The simple commands of a command line, those in substitutions too; raises UnreadableCommand."""
    found: list[SimpleCommand] = []
    inner: list[str] = []
    words: list[str] = []
    targets: list[str] = []
    word: list[str] | None = None
    is_target = False

    def end_word() -> None:
        nonlocal word, is_target
        if word is not None:
            (targets if is_target else words).append("".join(word))
            is_target = False
        word = None

    def end_command() -> None:
        nonlocal words, targets
        end_word()
        if words or targets:
            found.append(SimpleCommand(words, targets))
        words, targets = [], []

    at, size = 0, len(text)
    while at < size:
        char = text[at]
        if char == "\\":
            word = [*(word or []), text[at + 1 : at + 2].replace("\n", "")]
            at += 2
        elif char == "'":
            end = text.find("'", at + 1)
            if end < 0:
                raise UnreadableCommand
            word = [*(word or []), text[at + 1 : end]]
            at = end + 1
        elif char == '"':
            value, at = _double_quoted(text, at + 1, inner)
            word = [*(word or []), value]
        elif char == "`" or text.startswith(("$(", "<(", ">("), at):
            begin = at + (1 if char == "`" else 2)
            end = text.find("`", begin) if char == "`" else _closing(text, begin)
            if end < 0:
                raise UnreadableCommand
            if not text.startswith("$((", at):
                inner.append(text[begin:end])
            word = [*(word or []), text[at : end + 1]]
            at = end + 1
        elif char == "#" and word is None:
            end = text.find("\n", at)
            at = size if end < 0 else end
        elif char in "<>" or (char == "&" and text.startswith("&>", at)):
            if word is not None and all(each.isdigit() for each in word):
                word = None
            end_word()
            writes = char != "<"
            at += len(re.match(r"&?>>?\|?|<{1,3}-?", text[at:])[0])  # type: ignore[index]
            if text.startswith("&", at):
                at += 1 + len(re.match(r"[\d-]*", text[at + 1 :])[0])  # type: ignore[index]
            else:
                is_target = writes
        elif char in ";&|\n(){}" and not (char in "{}" and word is not None):
            if char in "{}" and text[at + 1 : at + 2] not in ("", " ", "\n", ";", "\t"):
                word = [char]
            else:
                end_command()
            at += 1
        elif char.isspace():
            end_word()
            at += 1
        else:
            end = at + 1
            while end < size and text[end] not in "\\'\"`$<>#;&|\n(){} \t\r":
                end += 1
            word = [*(word or []), text[at:end]]
            at = end
        if len(found) > _MAX_COMMANDS:
            raise UnreadableCommand
    end_command()
    for each in inner:
        found += read_commands(each)
    return found


def _double_quoted(text: str, at: int, inner: list[str]) -> tuple[str, int]:
    parts: list[str] = []
    while at < len(text):
        char = text[at]
        if char == '"':
            return "".join(parts), at + 1
        if char == "\\":
            parts.append(text[at + 1 : at + 2])
            at += 2
        elif char == "`" or text.startswith("$(", at):
            begin = at + (1 if char == "`" else 2)
            end = text.find("`", begin) if char == "`" else _closing(text, begin)
            if end < 0:
                raise UnreadableCommand
            inner.append(text[begin:end])
            parts.append(text[at : end + 1])
            at = end + 1
        else:
            parts.append(char)
            at += 1
    raise UnreadableCommand


def _closing(text: str, at: int) -> int:
    """Where the bracket ends that began before `at`; -1: nowhere."""
    depth, quote = 1, ""
    while at < len(text):
        char = text[at]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "()":
            depth += 1 if char == "(" else -1
            if not depth:
                return at
        at += 1
    return -1


def shell_risks(text: str, depth: int = 0) -> Iterator[str]:
    """What a command line does, each in a few words that go on after "The command"."""
    text = text[:MAX_COMMAND_CHARS]
    for pattern, words in WHOLE:
        if _compiled(pattern).search(text):
            yield words
    try:
        commands = read_commands(text)
    except (UnreadableCommand, RecursionError):
        yield UNREADABLE
        commands = [SimpleCommand(line.split(), []) for line in re.split(r"[;&|\n()]", text)[:_MAX_COMMANDS]]
    for command in commands:
        yield from _command_risks(command, depth)
    if any(_compiled(DATABASE_CLIENTS).search(f" {word}") for command in commands for word in command.words):
        for word in (word for command in commands for word in command.words if " " in word):
            for words in sql_risks(word):
                yield f"makes a statement that {words}"


def _command_risks(command: SimpleCommand, depth: int) -> Iterator[str]:
    words = list(command.words)
    head = ""
    while words:
        if re.fullmatch(r"\w+\+?=.*", words[0], re.S):
            words.pop(0)
            continue
        head = re.split(r"[\\/]", words[0])[-1].lower() or words[0]
        head = head.removesuffix(".exe")
        if head not in _STARTERS:
            break
        if head in ("sudo", "doas"):
            yield "runs as another user"
        words.pop(0)
        # Its own options, and what they take.
        while words and re.match(r"-|\d+[smhd]?$|\{\}$", words[0]):
            words.pop(0)
    if words:
        arguments = words[1:]
        line = f" {' '.join(arguments)[:_MAX_LINE_CHARS]} "
        for heads, pattern, said in COMMANDS:
            if _compiled(f"(?:{heads})$").match(head) and _compiled(pattern).search(line):
                yield said
        if depth < _MAX_DEPTH:
            for text in _started_by(head, arguments):
                yield from shell_risks(text, depth + 1)
    writes = head in _WRITING_PROGRAMS or (
        head in ("sed", "perl") and any(each.startswith("-i") for each in words)
    )
    for word in words:
        value = word.partition("=")[2] if re.match(r"-*\w+=[/~.]", word) else word
        value = value.removeprefix("@")
        what = path_risk(value, writes=writes)
        if what is not None:
            yield f"touches {what}: {value[:60]}"
    if not command.words and command.targets:
        yield "empties a file"
    for target in command.targets:
        what = None if target in _HARMLESS_DEVICES else path_risk(target, writes=True)
        if what is not None:
            yield f"touches {what}: {target[:60]}"


def _started_by(head: str, arguments: list[str]) -> Iterator[str]:
    """The command lines that a program is told to start."""
    if head in _SHELLS or head in (
        "su",
        "ssh",
        "docker",
        "podman",
        "kubectl",
        "watch",
        "nix-shell",
        "script",
    ):
        for flag, text in pairwise(arguments):
            if re.fullmatch(r"-\w*c|/c|--command|--run", flag):
                yield text
    if head == "ssh":
        rest = [each for each in arguments if not each.startswith("-")]
        yield " ".join(rest[1:])
    if head == "eval":
        yield " ".join(arguments)
    if head in ("find", "fd"):
        for at, word in enumerate(arguments):
            if word in ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec"):
                yield " ".join(f"'{each}'" for each in arguments[at + 1 :] if each not in (";", "+", "{}"))
    if head in ("docker", "podman", "kubectl", "npx", "uvx", "poetry", "pipenv") and "exec" in arguments[:1]:
        rest = [each for each in arguments[1:] if not each.startswith("-")]
        yield " ".join(rest[1:])


def path_risk(path: str, *, writes: bool) -> str | None:
    """What a path is, if it deserves a look."""
    if len(path) > 4_096 or "\n" in path:
        return None
    path = re.sub(r"^(\$HOME|\$\{HOME\})(?=/)", "~", path)
    if _compiled(SYSTEM_PATHS).search(path) and (writes or not re.match(r"/(usr/|s?bin|lib)", path)):
        return "a file of the system"
    if _compiled(SECRET_PATHS).search(path) and not path.endswith(
        (".pub", ".example", ".sample", ".template")
    ):
        return "a file with secrets"
    if writes and _compiled(SELF_STARTING_PATHS).search(path):
        return "a file that other programs act by"
    return None


def is_writer(tool: str) -> bool:
    return _compiled(_WRITERS).search(tool) is not None


def sql_risks(text: str) -> Iterator[str]:
    """What statements do, each in a few words that go on after "The statement"."""
    text = text[:MAX_COMMAND_CHARS]
    bare = re.sub(
        r"/\*.*?(\*/|$)|(--|#)[^\n]*|\[[^\]\n]*\]", " ", re.sub(r"'(''|[^'])*'", "'x'", text), flags=re.S
    )
    for part in bare.split(";")[:_MAX_COMMANDS]:
        statement = " ".join(part.split()).lower().strip("( ")[:_MAX_LINE_CHARS]
        if not _compiled(SQL_START).search(statement):
            continue
        statement = re.sub(r"^(explain( analyze)?|begin|start transaction) ", "", statement)
        for pattern, words in STATEMENTS:
            if _compiled(pattern).search(statement):
                yield words
        changed = re.search(r"\b(delete from|delete|update \S+ .*?set)\b", statement)
        if changed and not re.match(r"select|create|insert", statement):
            what = "deletes" if changed[0].startswith("delete") else "changes"
            condition = re.search(r"\bwhere\b(.*)", statement[changed.end() :])
            if condition is None:
                yield f"{what} every row (no condition)"
            elif holds_always(condition[1]):
                yield f"{what} every row (its condition always holds)"


def holds_always(condition: str) -> bool:
    """Whether a condition is true whatever the row holds."""
    condition = re.sub(r"[()]", " ", condition)
    condition = re.split(r"\b(limit|returning|order by|group by)\b", condition)[0]
    return any(
        all(_is_true(part.strip()) for part in re.split(r"\band\b", each))
        for each in re.split(r"\bor\b|\|\|", condition)
    )


def _is_true(part: str) -> bool:
    if part in ("true", "1", "not false", "'x'"):
        return True
    found = re.fullmatch(r"(\S+?) ?(=|<=|>=|<>|!=|<|>|like|is) ?(\S+)", part)
    if found is None:
        return False
    left, sign, right = found[1], found[2], found[3]
    if left == right:
        return sign in ("=", "<=", ">=", "like", "is")
    if re.fullmatch(r"-?\d{1,9}", left) and re.fullmatch(r"-?\d{1,9}", right):
        first, second = int(left), int(right)
        return {"<": first < second, "<=": first < second, ">": first > second, ">=": first > second}.get(
            sign, sign in ("<>", "!=")
        )
    return left.endswith("id") and sign in (">", ">=", "<>", "!=") and right in ("0", "-1", "''")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)
