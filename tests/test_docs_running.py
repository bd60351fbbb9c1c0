"""What the pages say of running a gateway holds: their configurations are read, and what they type into a
shell is typed beside a gateway that runs, and answered as they show."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from moot.config import check, load
from moot.config.profiles import BUILT_IN
from moot.protocol.operation import Json
from tests.test_docs import WRITTEN, Block, blocks_of, text_of
from tests.waiting import HANG_SECONDS
from tests.warm_start import warm_command, warm_programs


def configurations_in(page: str) -> Iterator[Block]:
    """The `yaml` blocks of a page: each is a whole moot.yaml or space.yaml, vectors apart."""
    for block in blocks_of(text_of(page)):
        if block.info == "yaml" and {"spaces", "participants"} & set(yaml.safe_load(block.code)):
            yield block


WITH_CONFIGURATION = [page for page in WRITTEN if any(configurations_in(page))]


@pytest.mark.parametrize("page", WITH_CONFIGURATION)
def test_every_configuration_that_a_page_shows_can_be_run(page: str, tmp_path: Path) -> None:
    for number, block in enumerate(configurations_in(page)):
        folder = tmp_path / str(number)
        folder.mkdir()
        file = folder / ("moot.yaml" if "spaces" in yaml.safe_load(block.code) else "space.yaml")
        file.write_text(block.code, "utf-8")
        file.chmod(0o600)
        environ = {name: f"secret-{name}" for name in re.findall(r"\w+_env: (\w+)", block.code)}
        for name in re.findall(r"credentials_file: (\S+)", block.code):
            (folder / name).touch(mode=0o600)
        lines = check(file, environ=environ)
        assert not [line for line in lines if "not known here" in line], f"{page}:{block.line}"
        assert load(file, environ=environ).spaces


def test_the_table_of_profiles_has_the_built_in_ones() -> None:
    table = text_of("docs/how-to/run-a-gateway.md").partition("## Profiles")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == set(BUILT_IN)


def test_the_check_shown_in_the_guide_is_what_check_says(tmp_path: Path) -> None:
    page = list(blocks_of(text_of("docs/how-to/run-a-gateway.md")))
    file = tmp_path / "moot.yaml"
    file.write_text(next(block.code for block in page if block.info == "yaml"), "utf-8")
    shown = next(block.code for block in page if block.code.startswith("gateway: http"))
    assert shown.splitlines() == [
        line.replace(str(tmp_path), "/home/you/lab") for line in check(file, environ={})
    ]


# Pages whose shell lines are typed in, one after the other, beside a gateway that runs.
SESSIONS = ["docs/how-to/talk-over-http.md", "docs/tutorial.md"]


@contextmanager
def gateway_of(page: str, folder: Path) -> Iterator[str]:
    """A real gateway with the page's own configuration; its URL."""
    (folder / "moot.yaml").write_text(next(configurations_in(page)).code, "utf-8")
    command = [*warm_command(), "serve", "moot.yaml", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        try:
            answer = (line.partition("moot gateway listening on ")[2].strip() for line in lines)
            yield next(url for url in answer if url)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=HANG_SECONDS) == 0


def agrees(shown: Json, came: Json) -> bool:
    """Equal, but that an ellipsis on the page stands for anything."""
    if shown == "…":
        return True
    if isinstance(shown, dict) and isinstance(came, dict):
        return shown.keys() == came.keys() and all(agrees(shown[key], came[key]) for key in shown)
    if isinstance(shown, list) and isinstance(came, list):
        return len(shown) == len(came) and all(map(agrees, shown, came))
    return bool(shown == came)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the pages use curl")
@pytest.mark.parametrize("page", SESSIONS)
def test_what_a_page_types_into_a_shell_is_answered_as_it_shows(page: str, tmp_path: Path) -> None:
    blocks = list(blocks_of(text_of(page)))
    typed = [
        (block, following)
        for block, following in zip(blocks, [*blocks[1:], blocks[-1]], strict=True)
        if block.info == "sh" and not block.code.startswith(("moot serve", "make "))
    ]
    with gateway_of(page, tmp_path) as url:
        script = "printf '\\0'\n".join(
            block.code.replace("http://localhost:8080", url) + "\n" for block, _ in typed
        )
        environ = os.environ | {
            "PATH": f"{warm_programs()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        }
        done = subprocess.run(  # noqa: S603
            ["bash", "-euo", "pipefail", "-c", script],  # noqa: S607
            cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=HANG_SECONDS, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    outputs = done.stdout.split("\0")
    shown = 0
    for (block, following), came in zip(typed, outputs, strict=True):
        where = f"{page}:{block.line}"
        if following.info == "json":
            assert agrees(json.loads(following.code), json.loads(came)), f"{where}: {came}"
            shown += 1
        elif following.info == "":
            assert came.strip() == following.code.strip(), where
    assert shown >= 3


def test_an_ellipsis_agrees_with_anything_and_nothing_else_does() -> None:
    assert agrees({"id": "…", "n": [1]}, {"id": "e1", "n": [1]})
    assert not agrees({"id": "…"}, {"id": "e1", "more": 1})
    assert not agrees([1], [1, 2])
