"""What an installation brings: every import is declared, and a missing extra is one clear line."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from itertools import takewhile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from moot.cli.process.extras import EXTRAS
from tests.waiting import HANG_SECONDS

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "moot"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OPTIONAL: dict[str, list[str]] = PROJECT["optional-dependencies"]

# Ours, Python's own, and the one that only type checkers know.
NOT_FROM_OUTSIDE = {"moot", "_typeshed", *sys.stdlib_module_names}
# Many distributions put something there; this is the one that we import.
SHARED = {
    "google": "protobuf",
    "opentelemetry": "opentelemetry-api",
    "opentelemetry.exporter": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.sdk": "opentelemetry-sdk",
}
# Where a module of an extra may be imported; everywhere else only what a plain installation brings.
ROOMS_OF = {
    "a2a": {"agents/a2a"},
    "cedar": {"trust/rules"},
    "cluster": {"gateway/cluster"},
    "keyring": {"config"},
    "otel": {"tracing"},
    "rules": {"values"},
    "tui": {"tui"},
    "xprotocol": {"xprotocol"},
}

# What stands before a command to make this environment one without extras: their modules cannot be found.
WITHOUT = """\
import sys
import threading
from importlib.machinery import PathFinder

class Missing(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        is_missing = name in MODULES or name.partition(".")[0] in MODULES
        return None if is_missing else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Missing if finder is PathFinder else finder for finder in sys.meta_path]
"""


def names_of(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


@cache
def installed() -> Mapping[str, list[str]]:
    return packages_distributions()


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All of them, however deep; expressions have none, and are most of a file."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        below = getattr(node, name, ())
        for each in below if isinstance(below, list) else ():
            yield each
            yield from statements(each)


@cache
def imported() -> dict[str, set[str]]:
    """Every module from outside that some file of ours imports, late or early, and the files that do."""
    found: dict[str, set[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        for node in statements(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            else:
                continue
            for name in names:
                top = next((each for each in SHARED if name.startswith(f"{each}.") and "." in each), None)
                top = top or name.partition(".")[0]
                if top not in NOT_FROM_OUTSIDE:
                    found.setdefault(top, set()).add(str(file.relative_to(SOURCE)))
    return found


def distribution_of(module: str) -> str:
    if module in SHARED:
        return SHARED[module]
    homes = installed().get(module)
    assert homes, f"{module} is imported and not installed"
    return canonicalize_name(homes[0])


def run_without(modules: Iterable[str], call: str) -> subprocess.CompletedProcess[str]:
    script = f"MODULES = {set(modules)!r}\n{WITHOUT}\n{call}"
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )


def test_every_import_is_declared_and_nothing_else_is() -> None:
    declared = names_of(PROJECT["dependencies"]).union(
        *(names_of(texts) for name, texts in OPTIONAL.items() if name != "all")
    )
    needed = {distribution_of(module) for module in imported()}
    assert needed - declared == set(), "imported and not declared"
    assert declared - needed == set(), "declared and not imported"


def test_what_an_extra_brings_is_imported_in_its_own_rooms_only() -> None:
    plain = names_of(PROJECT["dependencies"])
    for module, files in imported().items():
        name = distribution_of(module)
        if name in plain:
            continue
        rooms = set().union(*(ROOMS_OF[extra] for extra in ROOMS_OF if name in names_of(OPTIONAL[extra])))
        assert {file for file in files if not any(file.startswith(f"{room}/") for room in rooms)} == set()


def test_all_takes_every_extra() -> None:
    (everything,) = OPTIONAL["all"]
    assert Requirement(everything).extras == set(OPTIONAL) - {"all"} == set(EXTRAS)


def test_the_modules_that_show_an_extra_are_those_that_it_declares() -> None:
    plain = names_of(PROJECT["dependencies"])
    for extra, modules in EXTRAS.items():
        brought = {distribution_of(module) for module in modules}
        assert not brought & plain
        # The MCP SDK brings these to everybody.
        assert brought == names_of(OPTIONAL[extra]) - {"cryptography", "opentelemetry-api"}


def test_without_any_extra_the_commands_of_a_space_work(tmp_path: Path) -> None:
    """Every module outside the extras' rooms can be imported, and a space can be made and checked."""
    rooms = {room.replace("/", ".") for rooms in ROOMS_OF.values() for room in rooms}
    skipped = tuple(f"moot.{room}." for room in rooms)
    call = (
        "import os, pkgutil, moot\n"
        "from importlib import import_module\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "from moot.cli import main\n"
        "assert main(['demo']) == 0\n"
        "assert main(['init', 'filesystem', 'mine']) == 0\n"
        "assert main(['serve', 'mine/moot.yaml', '--check']) == 0\n"
        "for found in pkgutil.walk_packages(moot.__path__, 'moot.'):\n"
        f"    if not found.name.startswith({skipped!r}) and not found.name.endswith('.__main__'):\n"
        "        import_module(found.name)\n"
    )
    done = run_without((module for modules in EXTRAS.values() for module in modules), call)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_install_page_has_a_row_for_each_extra() -> None:
    page = (ROOT / "docs/install.md").read_text("utf-8")
    rows = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted([*EXTRAS, "all"])


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("moot.cli", ["xp", "relay", "--port", "0"]),
        ("moot.cli", ["xp", "relay"]),
        ("moot.cli.adapter", ["keygen"]),
        ("moot.cli.adapter", ["status"]),
        ("moot.cli.devserver", []),
    ],
)
def test_without_its_extra_a_command_says_what_to_type(entry: str, words: list[str], tmp_path: Path) -> None:
    prefix = f"import os, sys\nos.chdir({str(tmp_path)!r})\nfrom {entry} import main\n"
    done = run_without(EXTRAS["xprotocol"], f"{prefix}sys.exit(main({words!r}))")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith(
        "Install it: pip install '.[xprotocol]' in the clone of Moot (docs/install.md, Extras)\n"
    )
    assert list(tmp_path.iterdir()) == []
    help = run_without(EXTRAS["xprotocol"], f"{prefix}main([*{words[:1]!r}, '--help'])")
    assert help.returncode == 0
    assert help.stdout.startswith("usage: ")


LOOP = """
import asyncio
from moot.net import event_loop

async def loop_in_use():
    return type(asyncio.get_running_loop()).__module__

with asyncio.Runner(loop_factory=event_loop.new_event_loop) as runner:
    print(runner.run(loop_in_use()))
"""


def test_programs_run_on_uvloop_where_it_is_and_on_asyncio_elsewhere() -> None:
    assert run_without((), LOOP).stdout == "uvloop\n"
    assert run_without({"uvloop"}, LOOP).stdout == "asyncio.unix_events\n"


def test_the_live_demo_needs_neither_uvloop_nor_an_extra(tmp_path: Path) -> None:
    """Up to the first proposal, over real sockets; Ctrl-C ends it."""
    missing = {"uvloop"}.union(*EXTRAS.values())
    call = "from moot.cli import main\nsys.exit(main(['demo', '--live', '--port', '0', '--no-browser']))"
    script = f"MODULES = {missing!r}\n{WITHOUT}\n{call}"
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as demo:
        bound = threading.Timer(HANG_SECONDS, demo.kill)
        bound.start()
        assert demo.stdout is not None
        seen = list(takewhile(lambda line: " mcp/proposal " not in line, demo.stdout))
        demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()
        bound.cancel()
    assert demo.returncode == 0, "".join(seen) + rest
    assert rest.endswith("stopped; the demo left nothing behind\n")
