"""What a peer wrote, made harmless: the terminal programs of `moot.tui` and the commands here share it."""

from moot.tui.terminal_escape import printable, printable_json

__all__ = ["printable", "printable_json"]
