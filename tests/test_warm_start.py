"""A process that was forked for a test does what one does that a shell starts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.gateway.running_gateway import gateway_settings, participants, space_settings, write_config
from tests.gateway.served import served
from tests.waiting import bounded
from tests.warm_start import WarmProcess, start_moot

PATH = {"PATH": os.environ["PATH"]}


@pytest.mark.parametrize(
    "words",
    [["serve", "moot.yaml", "--check"], ["serve", "no.yaml"], ["serve", "--prot"], ["--version"]],
    ids=" ".join,
)
async def test_it_says_the_same_and_ends_alike(tmp_path: Path, words: list[str]) -> None:
    people = {"alice": {"tokens": ["${ALICE}"], "capabilities": [{"kind": "*"}]}}
    write_config(tmp_path, gateway_settings({"lab": space_settings(people)}))
    variables = PATH | {"ALICE": "t-of-alice-from-the-environment"}
    warm = await start_moot(*words, environ=variables, cwd=tmp_path, stderr=asyncio.subprocess.STDOUT)
    assert isinstance(warm, WarmProcess)
    cold = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "moot.cli", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=variables,
        cwd=tmp_path,
    )
    async with bounded():
        said, _ = await warm.communicate()
        assert (await cold.communicate())[0] == said
        assert warm.returncode == cold.returncode


async def test_a_signal_ends_it_and_no_other(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
        write_config(folder, gateway_settings({"lab": space_settings(participants(alice=["*"]))}))
    one, other = (served(folder / "moot.yaml") for folder in folders)
    async with other as staying:
        async with one as killed:
            assert (await killed.end(signal.SIGKILL))[0] == -signal.SIGKILL
        assert (await staying.http.get("/health")).status_code == 200
        assert (await staying.end())[0] == 0
