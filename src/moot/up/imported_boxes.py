"""`moot init --from`: the box of each imported server, by what is known of it and the paths that it names."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Final

from moot.box.box_plan import HOME
from moot.protocol.operation import Json

# What fetches a server before it starts it, and from where.
_FETCHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "npx": ("registry.npmjs.org",),
    "bunx": ("registry.npmjs.org",),
    "uvx": ("pypi.org", "files.pythonhosted.org"),
    "pipx": ("pypi.org", "files.pythonhosted.org"),
}
# Servers that need no host, or only these, by a part of their package's name.
_HOSTS: Final[Mapping[str, tuple[str, ...]]] = {
    "server-filesystem": (),
    "server-memory": (),
    "server-sequential-thinking": (),
    "server-everything": (),
    "server-git": (),
    "server-time": (),
    "server-sqlite": (),
    "server-calculator": (),
    "server-code-runner": (),
    "git-mcp-server": (),
    "mcp-hello-world": (),
    # It fetches whatever it is asked for.
    "server-fetch": ("*",),
    "context7-mcp": ("mcp.context7.com", "context7.com"),
    "mcp-server-chart": ("antv-studio.alipay.com",),
    "server-github": ("api.github.com",),
    "server-gitlab": ("gitlab.com",),
    "server-slack": ("slack.com",),
    "server-brave-search": ("api.search.brave.com",),
    "server-google-maps": ("maps.googleapis.com",),
    "server-sentry": ("sentry.io",),
}
# Those that write beside their program, which is read-only in a box, unless a variable says where else.
_VARIABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "server-memory": {"MEMORY_FILE_PATH": f"{HOME}/memory.jsonl"}
}
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
_BROWSERS = re.compile(r"puppeteer|playwright|chrome|browser")
_LOCAL_ADDRESS = re.compile(
    r"://([^/@]*@)?(localhost|127\.|10\.|192\.168\.|172\.(1[6-9]|2\d|3[01])\.|\[::1\])"
)
_SCRIPTS: Final = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".sh"})
_PROJECT_FILES: Final = ("package.json", "pyproject.toml", "requirements.txt", ".git")
_PROXIES: Final = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")


def box_for(
    settings: Mapping[str, Json], folder: Path, *, missing: str | None, environ: Container[str]
) -> tuple[Json, str | None]:
    """What stands under `box` for this server, and a note if it is not confined. None: it runs elsewhere.

    `missing`: why there are no boxes on this machine, if there are none.
    """
    if "command" not in settings:
        return None, None
    args = settings.get("args")
    words = [str(each) for each in args] if isinstance(args, list) else []
    program = Path(str(settings["command"])).name
    if missing is None:
        missing = _unfit(program, words)
    hosts = _hosts(program, words)
    if missing is None and hosts and any(name in environ for name in _PROXIES):
        missing = "this machine reaches other hosts by a proxy, which a box cannot use"
    if missing is not None:
        return "off", f"not confined here: {missing}"
    box: dict[str, Json] = {}
    if read := _projects([str(settings["command"]), *words], folder):
        box["read"] = list(read)
    if write := _folders([*words, str(settings.get("cwd", ""))], folder):
        box["write"] = list(write)
    if hosts:
        box["network"] = list(hosts)
    return box or "on", None


def box_variables(settings: Mapping[str, Json]) -> Mapping[str, Json]:
    """The variables that a server is given because it is in a box; those that it has go first."""
    given, args = settings.get("env"), settings.get("args")
    names = _names(str(settings["command"]), [str(each) for each in args] if isinstance(args, list) else [])
    found = (_VARIABLES[name] for name in _VARIABLES if any(each.endswith(name) for each in names))
    return {**next(found, {}), **(given if isinstance(given, dict) else {})}


def _unfit(program: str, words: list[str]) -> str | None:
    if program in _CONTAINERS:
        return f"{program} has a container of its own"
    if any(_BROWSERS.search(word) for word in words):
        return "it starts a browser"
    if any(_LOCAL_ADDRESS.search(word) for word in words):
        return "it reaches an address in your own network; with that under box: network it can be"
    return None


def _hosts(program: str, words: list[str]) -> tuple[str, ...]:
    names = _names(program, words)
    known = [hosts for each in names for name, hosts in _HOSTS.items() if each.endswith(name)]
    # Of others nobody knows: all public hosts, and still none of your network.
    return (*_FETCHERS.get(program, ()), *known[0]) if known else ("*",)


def _names(program: str, words: list[str]) -> list[str]:
    # With or without a version: `@scope/server-git@1.2`.
    return [program, *(re.sub(r"(?<=\w)@.*", "", word) for word in words[:6])]


def _projects(words: list[str], folder: Path) -> list[str]:
    """The folders of programs that are scripts: what they import is beside them."""
    found: dict[str, None] = {}
    for word in words:
        path = _path(word, folder)
        if path is None or path.suffix not in _SCRIPTS or not path.is_file():
            continue
        around = [each for each in path.parents if not Path.home().is_relative_to(each)]
        marked = [each for each in around if any((each / name).exists() for name in _PROJECT_FILES)]
        if found_here := (marked or around)[:1]:
            found[str(found_here[0])] = None
    return list(found)


def _path(word: str, folder: Path) -> Path | None:
    filled = word.replace("${FOLDER}", str(folder)).replace("${env:HOME}", str(Path.home()))
    path = Path(filled).expanduser()
    return path if path.is_absolute() and "${" not in filled else None


def _folders(words: list[str], folder: Path) -> list[str]:
    """The folders that the arguments name, or in which the files are that they name."""
    found: dict[str, None] = {}
    for word in words:
        shown = word.partition("=")[2] if word.startswith("-") and "=" in word else word
        path = _path(shown, folder)
        if path is None:
            continue
        if path.is_dir() and path != Path("/"):
            found[shown] = None
        elif path.is_file() and path.suffix in (".db", ".sqlite", ".sqlite3", ".json", ".jsonl"):
            # A database has files beside it.
            found[str(Path(shown).parent)] = None
    return list(found)
