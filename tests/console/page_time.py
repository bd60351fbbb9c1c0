"""What depends on time in the page, made independent of how fast the machine is."""

from __future__ import annotations

from playwright.sync_api import Page


def press_at_once(page: Page, *keys: str) -> None:
    """One after the other in one turn of the page, so sooner than any rule allows, on any machine."""
    page.evaluate(
        """(keys) => {
            for (const key of keys)
                document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        }""",
        list(keys),
    )


def hold_long_timers(page: Page) -> None:
    """From now on nothing happens in the page because seconds have passed, however slow a test is."""
    page.evaluate(
        """() => {
            const start = window.setTimeout;
            window.setTimeout = (run, milliseconds, ...rest) =>
                start(run, milliseconds >= 4000 ? 2 ** 31 - 1 : milliseconds, ...rest);
        }"""
    )
