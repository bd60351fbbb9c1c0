"""`make soak`: `moot conformance URL` with all vectors that it can run, on our own gateway process."""

from __future__ import annotations

import io
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from tests.conformance_vectors import all_vectors
from tests.gateway.served_spaces import runnable, serve_spaces


def run_conformance_command(runs: int, seed: int) -> str:
    """Ask one gateway so many times, with all vectors each time."""
    del seed
    count = len(runnable())
    assert count >= 280
    left = len(all_vectors()) - count
    with tempfile.TemporaryDirectory() as folder, serve_spaces(Path(folder)) as served:
        for _ in range(runs):
            answer = io.StringIO()
            with redirect_stdout(answer):
                code = served.run()
            assert code == 0, answer.getvalue()
            end = f"vectors: {count} passed, 0 failed, {left} not runnable\n"
            assert answer.getvalue().endswith(end), answer.getvalue()
    return f"{count} vectors over WebSockets on a gateway process, {runs} times"
