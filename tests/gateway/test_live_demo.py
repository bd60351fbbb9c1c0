"""`make run`: a real gateway, a tool, an agent that proposes; what it prints is what a person can type."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest


@pytest.fixture
def demo() -> Iterator[subprocess.Popen[str]]:
    running = subprocess.Popen(
        [sys.executable, "-m", "moot.cli", "demo", "--live", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield running
    if running.poll() is None:
        running.kill()
    running.wait(10)
    assert running.stdout is not None
    running.stdout.close()


def lines_until(demo: subprocess.Popen[str], wanted: str) -> str:
    """Everything printed up to the first line that holds this text."""
    assert demo.stdout is not None
    read = []
    for line in demo.stdout:
        read.append(line)
        if wanted in line:
            return "".join(read)
    raise AssertionError(f"ended without {wanted!r}: {''.join(read)}")


@pytest.mark.requirement("MEW-1-3")
def test_the_demo_proposes_and_the_printed_line_approves_it(demo: subprocess.Popen[str]) -> None:
    """MEW 9.1 with real members: a proposal, a decision over HTTP, a tool that writes a file."""
    told = lines_until(demo, "mcp/proposal")
    url = re.search(r"http://\S+/participants/you/messages", told)
    token = re.search(r"cat (\S+you\.token)", told)
    body = re.search(r"-d '(.*mcp/request.*)'", told)
    notes = re.search(r"cat (\S+notes\.md)", told)
    assert url is not None
    assert token is not None
    assert body is not None
    assert notes is not None
    headers = {
        "Authorization": f"Bearer {Path(token[1]).read_text().strip()}",
        "Content-Type": "application/json",
    }
    answer = httpx.post(url[0], content=body[1], headers=headers, timeout=10)
    assert answer.json()["status"] == "accepted"
    lines_until(demo, "mcp/response")
    assert Path(notes[1]).read_text() == "note 1 by the agent\n"
    again = httpx.post(url[0], content=body[1], headers=headers, timeout=10)
    assert (again.status_code, again.json()["error"]) == (409, "proposal_settled")
    demo.send_signal(signal.SIGINT)
    lines_until(demo, "left nothing behind")
    assert demo.wait(10) == 0
    assert not Path(notes[1]).parent.exists()
