"""`make run`: a real gateway, a tool, an agent that proposes; what it prints can be typed and pasted."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.waiting import HANG_SECONDS, until_seen
from tests.warm_start import warm_command


@pytest.fixture
def demo() -> Iterator[subprocess.Popen[str]]:
    running = started({}, "--port", "0", "--no-browser")
    yield running
    end(running)


def started(variables: dict[str, str], *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603  # ours
        [*warm_command(), "demo", "--live", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | variables,
    )


def end(running: subprocess.Popen[str]) -> None:
    """A demo that is asked to stop leaves no folder behind."""
    assert running.stdout is not None
    if running.poll() is None:
        running.terminate()
    running.communicate(timeout=HANG_SECONDS)


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
    output = lines_until(demo, "mcp/proposal")
    url = re.search(r"http://\S+/participants/you/messages", output)
    token = re.search(r"cat (\S+you\.token)", output)
    body = re.search(r"say '(.*mcp/request.*)'", output)
    notes = re.search(r"cat (\S+notes\.md)", output)
    assert url is not None
    assert token is not None
    assert body is not None
    assert notes is not None
    headers = {
        "Authorization": f"Bearer {Path(token[1]).read_text().strip()}",
        "Content-Type": "application/json",
    }
    # A question of the console is no decision: the agent goes on waiting for one.
    tools = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
    question = {"kind": "mcp/request", "to": ["notes"], "payload": tools}
    asked = httpx.post(url[0], json=question, headers=headers, timeout=HANG_SECONDS)
    assert asked.json()["status"] == "accepted"
    assert "note 2" not in lines_until(demo, "mcp/response")
    answer = httpx.post(url[0], content=body[1], headers=headers, timeout=HANG_SECONDS)
    assert answer.json()["status"] == "accepted"
    lines_until(demo, "mcp/response")
    assert Path(notes[1]).read_text() == "note 1 by the agent\n"
    again = httpx.post(url[0], content=body[1], headers=headers, timeout=HANG_SECONDS)
    assert (again.status_code, again.json()["error"]) == (409, "proposal_settled")
    demo.send_signal(signal.SIGINT)
    lines_until(demo, "left nothing behind")
    assert demo.wait(HANG_SECONDS) == 0
    assert not Path(notes[1]).parent.exists()


def test_the_printed_token_opens_the_console_and_stands_in_no_address(demo: subprocess.Popen[str]) -> None:
    output = lines_until(demo, "mcp/proposal")
    console = re.search(r"^  open     (http://127\.0\.0\.1:\d+/)$", output, re.MULTILINE)
    token = re.search(r"^  sign in  (\S+)$", output, re.MULTILINE)
    assert console is not None
    assert token is not None
    assert output.count(token[1]) == 1
    page = httpx.get(console[1], timeout=HANG_SECONDS)
    assert (page.status_code, "<title>Moot</title>" in page.text) == (200, True)
    answer = httpx.get(
        f"{console[1]}spaces", headers={"Authorization": f"Bearer {token[1]}"}, timeout=HANG_SECONDS
    )
    assert [each["name"] for each in answer.json()["spaces"]] == ["demo"]


def test_the_console_is_opened_in_a_browser_where_there_is_a_display(tmp_path: Path) -> None:
    """`BROWSER` is what Python's webbrowser looks at first; this one writes down what it is given."""
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    os.mkfifo(opened)
    browser.write_text(f'#!/bin/sh\necho noise\necho noise >&2\necho "$1" > {opened}\n')
    browser.chmod(0o700)
    running = started({"DISPLAY": ":99", "BROWSER": f"{browser} %s"}, "--port", "0")
    try:
        output = lines_until(running, "Below is what everybody sees")
        console = re.search(r"open     (http://\S+)", output)
        assert console is not None
        # Comes when the browser does, or when the test is given up.
        assert opened.read_text().strip().startswith(f"{console[1]}#sign-in=")
        running.send_signal(signal.SIGINT)
        assert "noise" not in output + lines_until(running, "left nothing behind")
    finally:
        end(running)


def test_a_browser_that_cannot_be_started_is_not_heard_of(tmp_path: Path) -> None:
    """A machine with a display and no browser; the address is there to be copied."""
    broken = tmp_path / "xdg-open"
    tried = tmp_path / "tried"
    broken.write_text(f"#!/bin/sh\necho no browser here >&2\nmkdir {tried}\nexit 3\n")
    broken.chmod(0o700)
    variables = {"DISPLAY": ":99", "PATH": str(tmp_path) + ":/usr/bin:/bin", "BROWSER": str(broken)}
    running = started(variables, "--port", "0")
    try:
        output = lines_until(running, "mcp/proposal")
        until_seen(tried.exists)
        running.send_signal(signal.SIGINT)
        output += lines_until(running, "left nothing behind")
        assert running.wait(HANG_SECONDS) == 0
        assert "no browser here" not in output
    finally:
        end(running)


def test_a_port_that_is_taken_is_said_and_another_one_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        running = started({}, "--port", str(port), "--no-browser")
        try:
            output = lines_until(running, "listening on")
            assert f"Port {port} is in use by another program; taking a free one instead." in output
            assert f":{port}" not in output.partition("listening on")[2]
        finally:
            end(running)


def test_a_demo_that_nobody_reads_ends_in_silence(tmp_path: Path) -> None:
    """`moot demo --live | head -1`."""
    running = subprocess.Popen(  # noqa: S603  # ours
        [*warm_command(), "demo", "--live", "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert running.stdout is not None
    assert running.stderr is not None
    assert "listening on" in running.stdout.readline()
    running.stdout.close()
    # As of any program that writes into a closed pipe.
    assert running.wait(HANG_SECONDS) == 128 + signal.SIGPIPE
    # But for what a disk has it say that takes longer than its share of the time.
    assert [line for line in running.stderr if "the disk does not answer" not in line] == []
    running.stderr.close()
    assert list(tmp_path.iterdir()) == []
