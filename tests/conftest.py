"""What every test leaves behind it: nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Machines are shared: how long an example takes says nothing about the code.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in a browser come last: Playwright's loop stays in their thread, and no other runs there."""
    items.sort(key=lambda item: "/tests/console/" in str(item.path))


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command that is called here sets logging up for a process of its own; the next test is in ours."""
    root, own = logging.getLogger(), logging.getLogger("moot")
    before = [(logger, logger.handlers[:], logger.level, logger.propagate) for logger in (root, own)]
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagate
