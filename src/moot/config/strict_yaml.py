"""YAML without surprises: a key that stands twice is a mistake, and no error quotes the text."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import yaml

from moot.errors import UsageError
from moot.protocol.operation import Json

if TYPE_CHECKING:
    from yaml import SafeLoader as _SafeLoader
else:
    # libyaml's parser is six times quicker; wheels have it, an unusual build may not.
    _SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            # The last would win, and one participant would have the rights of another. `<<` may repeat.
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, "a key stands twice in one mapping", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _is_indented_by_tab(text: str, line: int) -> bool:
    lines = text.splitlines()
    shown = lines[line] if line < len(lines) else ""
    return "\t" in shown[: len(shown) - len(shown.lstrip())]


def _is_bare_star(text: str, mark: yaml.Mark) -> bool:
    """Whether it stops at `*` that names no alias, as in `capabilities: [*]`."""
    lines = text.splitlines()
    return mark.line < len(lines) and lines[mark.line][: mark.column].endswith("*")


def read_yaml(text: str) -> Json:
    """The value of a YAML text; raises UsageError that says where it stops being YAML, without quoting it."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  # a safe loader
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        # What stands in quotes is taken from the text, and may be a token that begins with ! or *.
        problem = fault.problem or "cannot be read"
        if not problem.startswith("did not find expected"):
            problem = re.sub(r"'.*'|\".*\"", "…", problem, flags=re.DOTALL)
        if mark and _is_indented_by_tab(text, mark.line):
            problem = "it is indented with a tab; use spaces"
        if mark and _is_bare_star(text, mark):
            problem = 'a * has to stand in quotes: write "*"'
        elif "constructor for the tag" in problem:
            problem = "what begins with ! has to stand in quotes"
        raise UsageError(f"{where}not valid YAML: {problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        # ValueError: a date such as 2024-13-45.
        raise UsageError("not valid YAML") from None
