"""A gateway process for `moot conformance URL`, and which vectors can be run on it by inviting."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moot.cli import main
from moot.conformance.remote_runner import why_not
from moot.conformance.vectors import Vector
from moot.protocol.operation import Json
from tests.conformance_vectors import all_vectors
from tests.waiting import HANG_SECONDS
from tests.warm_start import warm_command

ROOT: Json = {"root": {"tokens": ["t-root-of-everything"], "capabilities": [{"kind": "*"}]}}
GUEST: Json = {"guest": {"tokens": ["t-guest"], "capabilities": []}}
SPACES: Json = {
    "default": {"participants": ROOT},
    "busy": {"participants": ROOT | GUEST},
}


def runnable() -> list[Vector]:
    return [vector for _, vector in all_vectors() if why_not(vector) is None]


class Served:
    """A gateway process, and the file with a token that may do everything."""

    def __init__(self, url: str, token_file: Path) -> None:
        self.url = url
        self.token_file = str(token_file)

    def run(self, *options: str) -> int:
        return main(["conformance", self.url, "--token-file", self.token_file, *options])


@contextmanager
def serve_spaces(folder: Path) -> Iterator[Served]:
    """Run `moot serve` with these spaces in a folder."""
    config = folder / "moot.yaml"
    config.write_text(json.dumps({"gateway": {"port": 0, "data": "data"}, "spaces": SPACES}), "utf-8")
    config.chmod(0o600)
    token_file = folder / "root.token"
    token_file.write_text("t-root-of-everything\n", "utf-8")
    token_file.chmod(0o600)
    log = folder / "log"
    command = [*warm_command(), "serve", str(config)]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,  # noqa: S603
    ):
        watch = threading.Timer(30, process.kill)
        watch.start()
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        found = next((match for line in lines if (match := re.search(r"listening on (\S+)", line))), None)
        watch.cancel()
        assert found is not None, log.read_text("utf-8")
        yield Served(found[1], token_file)
        process.terminate()
        assert process.wait(HANG_SECONDS) == 0
    assert "Traceback" not in log.read_text("utf-8")
