"""Runs `async def` tests: one pytest plugin instead of a wrapper in every test.

Each test has a fresh event loop of the kind that the product runs on. A fixture that owns a loop (a gateway
shared by the tests of a module, say) has a method `run_test`; a test that asks for it runs on that loop.

No test lasts for ever: after `seconds` (the mark `@pytest.mark.seconds(n)`, otherwise the number below) it
fails with the stacks of the tasks that still waited. The bound catches hangs and measures no speed, so it is
far above what any test needs. What hangs where no loop can tell (a thread, a fixture, a task that does not
end) is ended by `faulthandler_timeout` of pyproject.toml, with the stacks of all threads.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, runtime_checkable

import pytest
import uvloop

from moot.resilience.task_set import end_other_tasks
from tests.waiting import bounded

DEFAULT_SECONDS = 600.0


@runtime_checkable
class LoopOwner(Protocol):
    """A fixture whose tests run on its own loop."""

    def run_test(self, test: Coroutine[Any, Any, None]) -> None: ...


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "seconds(n): how long an async test may last before it counts as hung")


def describe_tasks() -> str:
    """What each task of the running loop waits in, down to the last call, for a test that hangs."""
    lines: list[str] = []
    for task in asyncio.all_tasks():
        lines.append(repr(task))
        work: Any = task.get_coro()
        while work is not None:
            frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)
            if frame is not None:
                lines.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}")
            work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)
    return "\n".join(lines)


async def _bounded(test: Coroutine[Any, Any, None], seconds: float) -> None:
    stacks = ""
    loop = asyncio.get_running_loop()

    def remember() -> None:
        nonlocal stacks
        stacks = describe_tasks()

    # Just before the time is up: afterwards the tasks are being cancelled.
    watch = loop.call_later(seconds * 0.99, remember)
    try:
        async with asyncio.timeout(seconds) as bound:
            await test
    except TimeoutError:
        if bound.expired():
            pytest.fail(f"hung for {seconds:g} seconds; the tasks that waited:\n{stacks}", pytrace=False)
        raise
    finally:
        watch.cancel()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the test if it is a coroutine function; leave others to pytest."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}
    mark = pyfuncitem.get_closest_marker("seconds")
    test = _bounded(pyfuncitem.obj(**arguments), float(mark.args[0]) if mark else DEFAULT_SECONDS)
    owner = next((value for value in arguments.values() if isinstance(value, LoopOwner)), None)
    if owner is not None:
        owner.run_test(test)
        return True
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(test)
        finally:
            runner.run(_end_rest())
    return True


@contextmanager
def beside_a_halted_loop() -> Iterator[None]:
    """Where a browser was before, Playwright's loop is halted in this thread, and counts as running.

    Tests with a browser come last, but a worker that takes the place of one that crashed gets others, too.
    """
    halted = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(halted)


def _has_browser(item: pytest.Item) -> bool:
    return "browser" in getattr(item, "fixturenames", ())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with nullcontext() if _has_browser(item) else beside_a_halted_loop():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with nullcontext() if _has_browser(item) else beside_a_halted_loop():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    # After the last one, the browser itself is closed.
    with nullcontext() if _has_browser(item) or nextitem is None else beside_a_halted_loop():
        return (yield)


async def _end_rest() -> None:
    try:
        async with bounded():
            await end_other_tasks()
    except TimeoutError:
        pytest.fail(f"tasks that do not end:\n{describe_tasks()}", pytrace=False)
