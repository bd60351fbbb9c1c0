"""Keys whose meaning depends on the time between them."""

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
