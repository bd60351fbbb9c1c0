"""What `import moot` gives: few names, loaded when first used, each of them explained somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import moot
from tests.rows import for_each_row
from tests.waiting import HANG_SECONDS

ROOT = Path(__file__).resolve().parent.parent

# What only the edge needs. The core has no business with any of it, now or later.
SERVER_MODULES = frozenset(
    {"asyncio", "uvicorn", "starlette", "picows", "uvloop", "mcp", "socket", "sqlite3", "ssl", "textual"}
)


def modules_after(statement: str) -> set[str]:
    """What a fresh interpreter has loaded after one statement."""
    script = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    )
    return set(done.stdout.split())


def test_there_are_at_most_twenty_public_names() -> None:
    assert len(moot.__all__) <= 20
    assert len(set(moot.__all__)) == len(moot.__all__)


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert dir(moot) == sorted(moot.__all__)


@for_each_row("name", moot.__all__)
def test_every_public_name_resolves_to_what_its_home_calls_so(name: str) -> None:
    found = getattr(moot, name)
    home = import_module(moot._HOMES[name])
    assert found is getattr(home, name)


def test_every_public_name_has_a_home_and_every_home_is_public() -> None:
    assert set(moot._HOMES) == set(moot.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Gateway'"):
        moot.Gateway  # noqa: B018


def test_import_moot_loads_nothing_but_itself() -> None:
    loaded = modules_after("import moot")
    assert {name for name in loaded if name.startswith("moot")} == {"moot"}
    assert not loaded & {"orjson", "msgspec", "re2", "yaml"}


def test_import_moot_space_loads_no_server() -> None:
    loaded = modules_after("import moot.space.space")
    assert "moot.space.ladder" in loaded
    assert not loaded & SERVER_MODULES
    rooms = {name.split(".")[1] for name in loaded if name.startswith("moot.")}
    assert rooms == {"errors", "protocol", "space"}


def test_programs_start_without_what_few_of_them_use() -> None:
    """Each of these takes longer to load than most commands take: whoever uses one loads it then."""
    modules = (
        "cli.gateway.serve",
        "gateway.app",
        "up.mcp_endpoint",
        "bridges.server.bridge_runner",
        "xprotocol.adapter.adapter",
    )
    servers = ("up.servers.files", "up.servers.commands")
    loaded = modules_after("import " + ", ".join(f"moot.{name}" for name in (*modules, *servers)))
    assert "moot.gateway.sign_in.token_verifier" in loaded
    assert not loaded & {"mcp", "mcp_types", "pydantic", "jwt", "segno", "snowballstemmer", "httpx2", "numpy"}
    assert "moot.gateway" not in modules_after("import moot.cli.gateway.serve")


def test_a_first_use_loads_what_the_name_needs() -> None:
    assert "moot.space.space" in modules_after("import moot; moot.Space")
    assert "moot.space.space" not in modules_after("import moot; moot.Refused")


@for_each_row("name", moot.__all__)
def test_every_public_name_is_mentioned_in_the_readme_or_the_docs(name: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(re.search(rf"\b{name}\b", page.read_text("utf-8")) for page in pages)
