"""Opening a page in the browser of whoever sits here."""

from __future__ import annotations

import os
import subprocess
import sys


def has_display() -> bool:
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_browser(address: str) -> None:
    """Silent where it does not work: the address is printed in any case."""
    # In a process and a session of its own: Ctrl-C is not meant for the browser.
    subprocess.run(  # noqa: S603  # an address of ours, and no shell
        [sys.executable, "-m", "webbrowser", "-t", address],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )
