"""What holds for all tests of MCP: what is told or asked again and again, is so soon."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moot.mcp.downstream.client_requests.PROGRESS_SECONDS", 0.02)
    monkeypatch.setattr("moot.mcp.downstream.task_extension.TASK_POLL_SECONDS", 0.05)
