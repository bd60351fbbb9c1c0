"""What every test leaves behind it: nothing."""

from __future__ import annotations

import gc
import logging
import os
import re
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import certifi
import pytest
from hypothesis import HealthCheck, settings

from moot.resilience import restart_loop
from tests.config.former_constants import OF_THIS_TEST
from tests.examples import examples
from tests.ports import held_port

pytest_plugins = ["tests.async_tests", "tests.browser", "tests.forked_workers"]

# Machines are shared: how long an example takes says nothing about the code.
settings.register_profile(
    "shared", deadline=None, max_examples=examples(), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared")


_IN_A_BROWSER = ("/tests/console/", "/tests/deploy/")
# Tests that do the same a thousand times, or wait for a browser: measuring coverage makes them up to five
# times as slow and finds nothing that their neighbours do not.
_UNMEASURED = (
    *_IN_A_BROWSER,
    "/tests/gateway/hosting/test_fast_path_equivalence",
    "/tests/gateway/test_load",
    "/tests/participant/test_checking",
    "/tests/protocol/test_dialects_properties",
    "/tests/protocol/test_fingerprint",
    "/tests/protocol/test_patterns_reference",
    "/tests/protocol/test_scan_envelope",
    "/tests/space/test_attacks_load",
    "/tests/space/test_machine",
    "/tests/trust/learning/test_bench",
    "/tests/xprotocol/grammar/test_grammar_refusals",
    "/tests/xprotocol/grammar/test_grammar_tools",
    "/tests/xprotocol/search/test_search_quality",
    "/tests/xprotocol/translation/test_translation_determinism",
    "/tests/xprotocol/contracts/test_versions",
)


@pytest.fixture(autouse=True)
def constants_are_as_they_were() -> Iterator[None]:
    # What fails is started again soon.
    OF_THIS_TEST.setattr(restart_loop, "FIRST_SECONDS", 0.02)
    OF_THIS_TEST.setattr(restart_loop, "MAX_SECONDS", 0.05)
    yield
    OF_THIS_TEST.undo()


def pytest_configure(config: pytest.Config) -> None:
    """No test meets a public server: to read all public authorities costs each client and process 50 ms.

    Workers and all processes that tests start inherit it.
    """
    if not hasattr(config, "workerinput"):
        kept = TemporaryDirectory(prefix="moot-tests-")
        config.add_cleanup(kept.cleanup)
        file = Path(kept.name) / "authorities.pem"
        end = "-----END CERTIFICATE-----\n"
        file.write_text(certifi.contents().split(end, 1)[0] + end, "utf-8")
        os.environ["SSL_CERT_FILE"] = str(file)
    # Also for those who do not go by the environment.
    few = os.environ["SSL_CERT_FILE"]
    certifi.where = lambda: few


def pytest_sessionstart() -> None:
    """Everything that collecting makes stays: to look for garbage there is a tenth of its time."""
    gc.disable()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What was collected is left out of every later search for garbage: it is most of the memory.

    As often as Python looks by itself, a sixth of all time would go there.
    """
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 50, 100)
        gc.enable()


@cache
def _is_in(path: Path, parts: tuple[str, ...]) -> bool:
    return any(part in str(path) for part in parts)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in a browser come last: Playwright's loop stays in their thread, and no other runs there."""
    items.sort(key=lambda item: _is_in(item.path, _IN_A_BROWSER))
    for item in items:
        if _is_in(item.path, _UNMEASURED):
            item.add_marker("no_cover")


_FOLDERS = count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the test, named after it. pytest's own way also looks at its parents and sets a link."""
    name = re.sub(r"\W", "_", request.node.name)[:26]
    folder = tmp_path_factory.getbasetemp() / f"{name}{next(_FOLDERS)}"
    folder.mkdir(0o700)
    return folder


@pytest.fixture
def port() -> Iterator[int]:
    """A port on loopback that nobody else is given while the test runs."""
    with held_port() as held:
        yield held


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
