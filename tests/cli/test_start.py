"""What commands load: people wait for it each time, and most of a short command's CPU goes into it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.space_with_members import SpaceWithMembers
from tests.rows import for_each_row
from tests.waiting import HANG_SECONDS

_SCRIPT = """
import sys
from moot.cli import main
try: main(sys.argv[1:])
except SystemExit: pass
print('\\n'.join(sys.modules))
if 'dataclasses' in sys.modules:
    ours = [each for name, each in sys.modules.items() if name.startswith('moot.')]
    found = {each for module in ours for each in vars(module).values() if '__dataclass_fields__' in dir(each)}
    print('\\n'.join(f'dataclass:{each.__name__}' for each in found if isinstance(each, type)))
"""


def loaded_by(folder: Path, *words: str) -> set[str]:
    """All modules of a fresh interpreter after a command that finds its gateway gone."""
    token = folder / "me.token"
    token.write_text("a-token-of-nobody-at-all\n")
    token.chmod(0o600)
    # Nobody listens on port 1.
    where = ["--gateway", "http://127.0.0.1:1", "--token-file", str(token)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MOOT_", "COV"))}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _SCRIPT, *words, *where],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
        cwd=folder,
        env=clean,
    )
    assert "cannot be reached: connection refused" in done.stderr
    return set(done.stdout.split())


@for_each_row(
    "words, most",
    # 386, 381 and 337 in November 2026; a bound and not the number, for other versions of libraries.
    [(("proposals",), 405), (("members",), 405), (("decisions",), 375)],
)
def test_a_short_command_loads_few_modules(tmp_path: Path, words: tuple[str, ...], most: int) -> None:
    assert len(loaded_by(tmp_path, *words)) <= most


def test_a_short_command_makes_few_dataclasses(tmp_path: Path) -> None:
    """Each takes some 70 times as long as a struct of msgspec: 60 of them were a quarter of the start."""
    made = {name for name in loaded_by(tmp_path, "proposals") if name.startswith("dataclass:")}
    # Those whose repr leaves a secret out, or whose fields are filled in later.
    assert made == {
        f"dataclass:{name}" for name in ("ConnectOptions", "HttpClient", "IncomingRequest", "Invitation")
    }


def test_who_has_an_address_and_a_token_reads_no_yaml(tmp_path: Path) -> None:
    assert not {"yaml", "moot.config.loader"} & loaded_by(tmp_path, "proposals")


def test_who_joins_loads_no_proxies_and_no_other_loop(tmp_path: Path) -> None:
    """What dials loads both, unless it is told that they are not there; whoever wants them gets them."""
    loaded = {name.partition(".")[0] for name in loaded_by(tmp_path, "proposals")}
    assert "picows" in loaded
    assert not {"python_socks", "aiofastnet"} & loaded
    script = (
        "import moot.net.websocket_client, python_socks.async_.asyncio as found; assert found.Proxy.from_url"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=HANG_SECONDS)  # noqa: S603


def test_plain_patterns_need_no_regular_expressions_of_others(tmp_path: Path) -> None:
    assert not {"re2", "moot.config.box_config", "moot.config.secrets.env_file"} & loaded_by(
        tmp_path, "proposals"
    )


def test_an_operation_loads_no_other_ones(tmp_path: Path) -> None:
    operations = "moot.operations"
    loaded = loaded_by(tmp_path, "proposals")
    assert f"{operations}.proposal_operations" in loaded
    assert not {f"{operations}.{name}_operations" for name in ("member", "plan", "stream")} & loaded


def test_a_question_over_http_joins_no_space(tmp_path: Path) -> None:
    assert not {"picows", "uvloop", "moot.participant.joined_space"} & loaded_by(tmp_path, "decisions")


def test_a_command_that_has_joined_has_loaded_no_other_loop(lab: SpaceWithMembers) -> None:
    """What dials asks of each connection whose it is, and has that loaded to find out."""
    script = "from moot.cli import main; main(); import sys; print(*filter(sys.modules.get, sys.modules))"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script, "proposals"],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
        cwd=lab.folder,
    )
    loaded = set(done.stdout.split())
    assert "picows" in loaded
    assert not {"aiofastnet", "zoneinfo"} & loaded
