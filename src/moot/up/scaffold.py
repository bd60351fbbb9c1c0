"""`moot init`: makes a folder with a space that runs, from a template that comes with Moot."""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from moot.box.box_support import why_not_confined
from moot.config.connect_settings import find_config
from moot.errors import UsageError
from moot.private_files import use_folder
from moot.protocol.operation import Json
from moot.resilience.atomic_file import write_atomically

TEMPLATES: Final = Path(__file__).with_name("templates")
DEFAULT: Final = "filesystem"
# Describes a template; not copied.
_MANIFEST: Final = "template.yaml"
CONFIGURATION: Final = Path("moot.yaml")
_FILE_MODE: Final = 0o644
_PRIVATE_MODE: Final = 0o600
# A name such as @SPACE@ is replaced by a value.
_NAME = re.compile(r"@([A-Z_]+)@")
_BOX = re.compile(r"^( *)box: \{.*\}$", re.MULTILINE)
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Tokens, journal and logs of the space do not belong into a repository.
_IGNORED: Final = ".moot/\n*.token\n__pycache__/\n"


# The rules that a new space starts with: what people asked for runs, what others' words steer asks.

_HEADER: Final = """\
# The rules of this space; the first that matches decides. The approver reads this file again when it changes.
#
# Calls whose values people said are approved. Those that a value steers which came from somebody else (a
# mail, a page, a file), and those that can destroy something, are left to you, with the reason.
# Remove the rule, and every call asks. `moot origins list` shows what tools are said to do. More than `count`
# calls in an hour ask, too: an agent that runs away is noticed.
rules:
  - name: by-origin
    decision: approve
    tool: "*"
    extra_arguments: true
    ask: when_untrusted
    limits: {count: 5000, per: 1h}

# A call that only reads runs from then on once you have approved it. That a tool only reads counts when you
# have accepted what its server says of it: `moot origins accept SERVER`, or Rules in the console.
reads: remember

# What tools do. Of a tool that is not here the worst is assumed: others write what it returns, it reads
# private things, has an effect and reaches the outside.
"""


def rules_path(space: str) -> Path:
    """Where `moot rules run` looks for the rules of a space, below the folder of its moot.yaml."""
    return Path(".moot") / "trust" / space / "rules.yaml"


def default_rules(tools: Mapping[str, Json]) -> str:
    """The text of the rules file; `tools` says what tools do, by HOST/TOOL."""
    dumped = yaml.safe_dump({"tools": dict(tools)}, default_flow_style=None, sort_keys=False, width=200)
    return _HEADER + dumped


@dataclass(frozen=True, slots=True)
class Template:
    """One template: its name, a line about it, and what to do after it was made."""

    name: str
    about: str
    next: str
    # What its tools do; None if it has no approver, and so no rules.
    tools: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Vendor:
    """Where an API is spoken if nobody says otherwise, and with which model and key."""

    base_url: str
    model: str
    key_env: str


_OPENAI: Final = Vendor("https://api.openai.com/v1", "gpt-5-mini", "OPENAI_API_KEY")
# By `--api` of `moot agent`.
VENDORS: Final[Mapping[str, Vendor]] = {
    "chat": _OPENAI,
    "responses": _OPENAI,
    "anthropic": Vendor("https://api.anthropic.com/v1", "claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateValues:
    """The values for a template. What is not given follows from `api`."""

    space: str
    api: str = "chat"
    base_url: str | None = None
    model: str | None = None
    key_env: str | None = None

    def fill(self, text: str) -> str:
        vendor = VENDORS[self.api]
        values: Mapping[str, str] = {
            "SPACE": self.space,
            "API": self.api,
            "BASE_URL": vendor.base_url if self.base_url is None else self.base_url,
            "MODEL": vendor.model if self.model is None else self.model,
            "KEY_ENV": vendor.key_env if self.key_env is None else self.key_env,
        }
        return _NAME.sub(lambda found: values.get(found[1], found[0]), text)


def templates() -> list[Template]:
    """All templates, the default one first."""
    found = [_read(folder) for folder in sorted(TEMPLATES.iterdir()) if (folder / _MANIFEST).is_file()]
    return sorted(found, key=lambda template: template.name != DEFAULT)


def template_named(name: str) -> Template:
    for template in templates():
        if template.name == name:
            return template
    names = [template.name for template in templates()]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    raise UsageError(
        f"no template is called `{name}`.{hint} Choose from {', '.join(names)}; a folder comes after"
        f" the template, as in `moot init {close[0] if close else DEFAULT} DIR`"
    )


def space_name(folder: Path) -> str:
    """A name for a space in this folder: the folder's own, where that is a valid name."""
    name = _UNFIT.sub("-", folder.absolute().name).strip("-._")
    return name[:64] if name[:1].isalnum() else "lab"


def make(template: Template, folder: Path, values: TemplateValues) -> list[Path]:
    """Write the files of a template; the paths, relative to the folder. Overwrites nothing."""
    _check(values)
    files = dict(_files(template, values))
    private = []
    if template.tools is not None:
        private = [rules_path(values.space)]
        files[private[0]] = default_rules(template.tools)
    check_free(folder, files)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ignore_private_files(folder)
        if private:
            use_folder(folder / ".moot", option="another DIR")
        write_all(folder, files, private=private)
    except OSError as fault:
        raise UsageError(
            f"{folder} cannot be written: {fault.strerror or fault}. Choose a folder that you can write:"
            f" moot init {template.name} DIR"
        ) from None
    return list(files)


def write_all(folder: Path, files: Mapping[Path, str], *, private: Container[Path] = ()) -> None:
    """Write files that are not there yet, all or none; raises OSError."""
    made: list[Path] = []
    try:
        # The configuration last, so that a space is there only if all of it is.
        for path in sorted(files, key=lambda path: path == CONFIGURATION):
            mode = _PRIVATE_MODE if path in private else _FILE_MODE
            write_atomically(folder / path, files[path].encode(), mode=mode, replace=False)
            made.append(folder / path)
    except OSError:
        for each in made:
            each.unlink()
        raise


def check_free(folder: Path, files: Iterable[Path]) -> None:
    """Raises UsageError if the folder has a space, or one of these files."""
    there = find_config(folder) if folder.is_dir() else None
    if there is not None:
        raise UsageError(f"{there} already exists: this folder has a space. Choose another folder")
    taken = [str(path) for path in files if (folder / path).exists() or (folder / path).is_symlink()]
    if taken:
        raise UsageError(
            f"{folder}: these files would be overwritten: {', '.join(taken)}. Choose another folder"
        )


def _files(template: Template, values: TemplateValues) -> Iterator[tuple[Path, str]]:
    root = TEMPLATES / template.name
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if path.is_file() and path.name != _MANIFEST and "__pycache__" not in relative.parts:
            text = values.fill(path.read_text("utf-8"))
            yield relative, _unboxed(text) if relative == CONFIGURATION else text


def _unboxed(text: str) -> str:
    """Where there are no boxes the file says so, and why; the space works on the first day."""
    if not _BOX.search(text) or (why := why_not_confined()) is None:
        return text
    return _BOX.sub(lambda found: f"{found[1]}box: off  # not confined here: {why}", text)


def ignore_private_files(folder: Path) -> None:
    """Add to what the project ignores already."""
    file = folder / ".gitignore"
    before = file.read_text("utf-8") if file.exists() else ""
    missing = [line for line in _IGNORED.splitlines() if line not in before.splitlines()]
    if missing:
        start = before if not before or before.endswith("\n") else f"{before}\n"
        text = start + "".join(f"{line}\n" for line in missing)
        # Through a link to the file that it names.
        write_atomically(file.resolve(), text.encode(), mode=_FILE_MODE)


def check_space_name(name: str) -> None:
    if _UNFIT.search(name) or not name[:1].isalnum() or len(name) > 64:
        raise UsageError("a space's name has 1 to 64 letters, digits, '.', '_' or '-'")


def _check(values: TemplateValues) -> None:
    """Check values that go into a YAML file, with or without quotes."""
    check_space_name(values.space)
    for option, value in (("--base-url", values.base_url), ("--model", values.model)):
        if value is None:
            continue
        if not value or any(character in '"\\$' or not character.isprintable() for character in value):
            raise UsageError(f"{option}: contains a character that is not allowed there")
    if values.key_env is not None and _VARIABLE.fullmatch(values.key_env) is None:
        raise UsageError("--key-env: the name of an environment variable, not the key itself")


def _read(folder: Path) -> Template:
    manifest: Any = yaml.safe_load((folder / _MANIFEST).read_text("utf-8"))
    return Template(folder.name, manifest["about"], manifest["next"], manifest.get("tools"))
