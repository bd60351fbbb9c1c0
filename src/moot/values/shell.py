"""Shell commands: split as a shell does, into commands, words and operators.

Two readers must agree: our own, which knows only plain words, quotes, pipes, `&&`, `||`, `;` and
redirections, and tree-sitter's grammar of bash. Everything else (substitution, expansion, globs,
here-documents, subshells, background, control flow, comments, several lines) is not read, so only the very
same text can be approved.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from moot.values.atoms import NAME, Atom, file_atoms, fixed, is_path_like, name_atom, word_atoms
from moot.values.templates import Slot
from moot.values.urls import url_atoms
from moot.values.word_lists import (
    CHANGING,
    MESSAGE_OPTIONS,
    NESTED_GIT,
    RUNNERS,
    RUNNING_SUBCOMMANDS,
    SHELL_NODES,
    WITH_NESTED_SUBCOMMANDS,
    WITHOUT_SUBCOMMANDS,
)

log = logging.getLogger(__name__)

MAX_COMMAND_CHARS: Final = 2_000
_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t]+)
    |(?P<operator>\|\||&&|\||;|[0-9]?>>|[0-9]?>&[0-9]|&>|[0-9]?>|<(?![<(&]))
    |(?P<plain>[A-Za-z0-9_./:=@,+%^~-]+)
    |'(?P<single>[^'\n\r\0]*)'
    |"(?P<double>[^"$`\\!\n\r\0]*)"
    """,
    re.VERBOSE | re.ASCII,
)
_REDIRECTION: Final = re.compile(r"[0-9]?>>|&>|[0-9]?>|<")
_JOINT: Final = frozenset({"|", "||", "&&", ";"})
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


def shell_atoms(text: str) -> list[Atom] | None:
    """The atoms of a command line in its canonical form; None if it is more than this reader knows."""
    tokens = split_command(text)
    if tokens is None:
        return None
    atoms: list[Atom] = []
    command: list[str] = []
    before = ""
    for is_word, token in [*tokens, (False, "")]:
        if is_word:
            command.append(token)
            continue
        if command:
            # Words behind the file of a redirection are arguments of the command before it: not read.
            if before not in _JOINT and atoms and len(command) > 1:
                return None
            atoms += [*([fixed(" ")] if atoms else []), *_command_atoms(command)]
            command = []
        if token:
            atoms += [fixed(" "), fixed(token)]
        before = token
    return atoms


def split_command(text: str) -> list[tuple[bool, str]] | None:
    """Words (True) and operators (False) as bash would split them; None if this reader does not know."""
    if len(text) > MAX_COMMAND_CHARS or not text.isascii():
        return None
    tokens: list[tuple[bool, str]] = []
    word: str | None = None
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            return None
        at = found.end()
        if found.lastgroup in ("plain", "single", "double"):
            piece = found[found.lastgroup]
            if found.lastgroup == "plain" and word is None and piece.startswith("~"):
                return None
            if found.lastgroup == "plain" and re.search(r"[:=]~", piece):
                return None
            word = (word or "") + piece
            continue
        if found.lastgroup == "operator" and word is not None and word.isdigit() and found[0][0] in "<>&":
            return None
        if word is not None:
            tokens.append((True, word))
            word = None
        if found.lastgroup == "operator":
            tokens.append((False, found[0]))
    if word is not None:
        tokens.append((True, word))
    if not tokens or not _is_well_formed(tokens) or not _bash_agrees(text, tokens):
        return None
    return tokens


def _is_well_formed(tokens: list[tuple[bool, str]]) -> bool:
    """Whether each operator stands between commands, or before the file that it needs."""
    for at, (is_word, token) in enumerate(tokens):
        if is_word:
            continue
        after = at + 1 < len(tokens) and tokens[at + 1][0]
        if token in _JOINT and (not after or at == 0):
            return False
        if _REDIRECTION.fullmatch(token) and (not after or at == 0):
            return False
    return tokens[0][0]


@lru_cache(maxsize=1)
def _parser() -> Any:
    """tree-sitter's parser of bash; None where the extra `rules` is not installed."""
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError:
        log.warning(
            "shell commands are only compared word for word: pip install '.[rules]' in the clone of Moot"
        )
        return None
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _bash_agrees(text: str, tokens: list[tuple[bool, str]]) -> bool:
    parser = _parser()
    if parser is None:
        return False
    root = parser.parse(text.encode()).root_node
    if root.has_error:
        return False
    words: list[str] = []
    if not _collect_words(root, text, words):
        return False
    # `2>&1` has its second number as a word to tree-sitter.
    wanted = [token if is_word else token[-1] for is_word, token in tokens if is_word or ">&" in token]
    return words == wanted


def _collect_words(node: Any, text: str, words: list[str]) -> bool:
    if node.is_named and node.type not in SHELL_NODES:
        return False
    if node.type in ("word", "number", "raw_string", "string", "concatenation"):
        words.append(_unquoted(text[node.start_byte : node.end_byte]))
        return all(_collect_words(child, text, []) for child in node.children)
    if node.type == "variable_assignment":
        words.append(_unquoted(text[node.start_byte : node.end_byte]))
        return all(_collect_words(child, text, []) for child in node.children)
    return all(_collect_words(child, text, words) for child in node.children)


def _unquoted(text: str) -> str:
    return re.sub(r"'([^']*)'|\"([^\"]*)\"", lambda found: found[1] or found[2] or "", text)


def quoted_word(word: str) -> str:
    """A word in the canonical form: in single quotes when it is not plain."""
    if re.fullmatch(r"[A-Za-z0-9_./:=@,+%^~-]+", word) and not word.startswith("~"):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def _command_atoms(words: list[str]) -> Iterator[Atom]:
    """The atoms of one simple command, or of the file behind a redirection."""
    start = 0
    while start < len(words) and _ASSIGNMENT.match(words[start]):
        start += 1
    leading = _leading_words(words[start:])
    program = words[start].rpartition("/")[2] if start < len(words) else ""
    second = words[start + 1] if start + 1 < len(words) else ""
    # An option before the subcommand (`git -c x=y log`) can change what it does; of other programs it is not
    # known whether a word behind it is a subcommand.
    early_option = program not in WITHOUT_SUBCOMMANDS and second.startswith("-") and len(words) > start + 2
    runs = program.rstrip("0123456789.-") in RUNNERS or program in RUNNERS or start > 0
    runs = runs or (program, second) in RUNNING_SUBCOMMANDS
    runs = runs or (early_option and (program == "git" or program in WITH_NESTED_SUBCOMMANDS))
    listed = early_option or not CHANGING.isdisjoint(words[start : start + leading])
    before = ""
    for at, word in enumerate(words):
        if at:
            yield fixed(" ")
        plain = quoted_word(word)
        if at >= start + leading and _is_message(program, second, before, word):
            yield from (fixed("'"), Atom("message", word), fixed("'"))
        elif at < start + leading or plain != word:
            yield fixed(plain)
        elif runs:
            yield Atom("number", word) if re.fullmatch("0|[1-9][0-9]{0,8}", word) else fixed(word)
        else:
            yield from _argument_atoms(word, after_flag=listed or before.startswith("-"))
        before = word


def _is_message(program: str, second: str, flag: str, word: str) -> bool:
    return (program, second, flag) in MESSAGE_OPTIONS and Slot("message").fits(word)


def _leading_words(words: list[str]) -> int:
    """How many words at the start say what the command is."""
    if not words:
        return 0
    program = words[0].rpartition("/")[2]
    if program in WITHOUT_SUBCOMMANDS or len(words) == 1:
        return 1
    nested = program in WITH_NESTED_SUBCOMMANDS or (program == "git" and words[1] in NESTED_GIT)
    count = 1
    for word in words[1 : 3 if nested else 2]:
        if not re.fullmatch("[a-z][a-z-]*", word):
            break
        count += 1
    return count


def _argument_atoms(word: str, *, after_flag: bool) -> Iterator[Atom]:
    if word.startswith("-"):
        flag, equals, value = word.partition("=")
        if equals and flag.startswith("--") and value:
            yield fixed(flag + equals)
            yield from _value_atoms(value, listed=True)
        elif found := re.fullmatch("(-[A-Za-z])([0-9]{1,9})", word):
            yield from (fixed(found[1]), _number(found[2]))
        elif re.fullmatch("-[0-9]{1,9}", word):
            yield from (fixed("-"), _number(word[1:]))
        else:
            yield fixed(word)
        return
    yield from _value_atoms(word, listed=after_flag)


def _number(text: str) -> Atom:
    return Atom("number", text) if re.fullmatch("0|[1-9][0-9]*", text) else fixed(text)


def _value_atoms(word: str, *, listed: bool) -> Iterator[Atom]:
    if re.fullmatch("0|[1-9][0-9]{0,8}", word):
        yield Atom("number", word)
    elif "://" in word:
        yield from url_atoms(word) or [fixed(word)]
    elif NAME.fullmatch(word):
        yield name_atom(word, "word" if listed else "name")
    elif word.startswith(("/", ".", "~", "-")) or is_path_like(word):
        # A folder that is named by itself, or climbs, is as it is.
        yield from (file_atoms(word) if not word.endswith(("/", ".")) else None) or [fixed(word)]
    else:
        yield from word_atoms(word, "word" if listed else "name")
