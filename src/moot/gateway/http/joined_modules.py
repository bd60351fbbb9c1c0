"""Modules of the console in two scripts: what the sign-in form needs, and all the rest.

A hundred files are a hundred requests, and to make one costs a browser more than to run what it brings. So
the gateway sends them joined, without comments; they are written, tested and checked one by one, and nothing
is built before.

Each module becomes a function that gives its exports and runs when it is first needed, after those that it
imports, as a browser would have it. What would then mean something else is refused: modules that import each
other in a circle, exports that change, and every form of `import` and `export` that is not named here.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

# Part of the version that browsers keep files under: another one whenever modules are joined in another way.
JOINED_AS: Final = "joined 2"

_IMPORT: Final = re.compile(r"""^import \{([^}]*)\} from "([^"]+)";""", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:(?:async )?function\*? |class |const )(\w+))", re.MULTILINE)
_EXPORT_LIST: Final = re.compile(r"^export \{([\w\s,]*)\};", re.MULTILINE)
_OTHERS: Final = re.compile(r"^(?:import\b(?!\()|export\b).*", re.MULTILINE)
_LATER: Final = re.compile(r"\bimport\(")

# Comments that have their lines to themselves: a third of what would be sent. The lines stay, and are empty.
_COMMENT: Final = re.compile(r"^[ \t]*(?:/\*(?:[^*]|\*(?!/))*\*/[ \t]*|//.*)$", re.MULTILINE)

# Names that begin with a $ are ours alone.
_OURS: Final = re.compile(r"(?<![\w$])\$(?:modules|made|define|need|load)\b")
_START: Final = """const $modules = new Map();
const $made = new Map();
const $define = (name, make) => $modules.set(name, make);
const $need = (name) => {
  if (!$made.has(name)) $made.set(name, $modules.get(name)());
  return $made.get(name);
};
const $load = async (from, path) => {
  const name = new URL(path, `http://joined/${from}`).pathname.slice(1);
  if (!$modules.has(name)) {
    const rest = await import("./%s");
    if (!$modules.has(name)) rest.add($define, $need, $load);
  }
  return $need(name);
};
"""


def imported_by(name: str, text: str) -> list[str]:
    """The modules that run before this one."""
    folder = posixpath.dirname(name)
    return [posixpath.normpath(posixpath.join(folder, each)) for _, each in _IMPORT.findall(text)]


def in_order(starts: Iterable[str], modules: Mapping[str, str]) -> list[str]:
    """These modules and all that they need, in the order in which they run; ValueError if there is none."""
    order: dict[str, None] = {}
    entered: list[str] = []

    def enter(name: str) -> None:
        if name in order:
            return
        if name in entered:
            raise ValueError(f"modules import each other in a circle: {' '.join([*entered, name])}")
        entered.append(name)
        for each in imported_by(name, modules[name]):
            enter(each)
        entered.pop()
        order[name] = None

    for start in starts:
        enter(start)
    return list(order)


def join_start(start: str, modules: Mapping[str, str], rest: str) -> str:
    """The script that runs `start`; what is asked for later comes from the script `rest` beside it."""
    *needed, _ = in_order([start], modules)
    defined = "".join(_define(name, modules[name]) for name in needed)
    body, _ = _rewrite(start, modules[start])
    # The first module may wait at its top; it has the whole script as its own.
    return f"{_START % rest}{defined}// {start}\n{body}"


def join_rest(start: str, modules: Mapping[str, str]) -> str:
    """All other modules, none of which runs before it is needed."""
    first = len(in_order([start], modules))
    others = in_order([start, *sorted(modules)], modules)[first:]
    defined = "".join(_define(name, modules[name]) for name in others)
    return f"export const add = ($define, $need, $load) => {{\n{defined}}};\n"


def _define(name: str, text: str) -> str:
    body, exported = _rewrite(name, text)
    return f'$define("{name}", () => {{\n{body}\nreturn {{ {", ".join(exported)} }};\n}});\n'


def _rewrite(name: str, text: str) -> tuple[str, Collection[str]]:
    """What a module does, and the names of what it gives."""
    folder = posixpath.dirname(name)

    def need(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[2]))
        # Kept on as many lines: an error names the line.
        names = re.sub(r"(\w+)\s+as\s+(\w+)", r"\1: \2", found[1])
        return f'const {{{names}}} = $need("{path}");'

    exported = {each[1]: None for each in _EXPORT.finditer(text)}
    for each in _EXPORT_LIST.finditer(text):
        exported.update(dict.fromkeys(_names(each[1].split(","))))
    body = _EXPORT_LIST.sub("", _EXPORT.sub("", _IMPORT.sub(need, without_comments(text))))
    if other := _OTHERS.search(body) or _OURS.search(text):
        raise ValueError(f"{name} cannot be joined with others: {other[0]}")
    body = _LATER.sub(f'$load("{name}", ', body)
    return body.replace("import.meta.url", f'new URL("./{name}", import.meta.url).href'), exported


def without_comments(text: str) -> str:
    """The same program on the same lines."""
    return _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)


def _names(listed: Iterable[str]) -> list[str]:
    return [each.strip() for each in listed if each.strip()]
