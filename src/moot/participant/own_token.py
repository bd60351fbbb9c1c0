"""The token of a program: in a file that it names, or where `moot up` and people put it."""

from __future__ import annotations

import os
from pathlib import Path

from moot.config.connect_settings import TOKEN, TOKEN_FILE
from moot.errors import UsageError
from moot.private_files import token_from as read_token_file


def token_from(path: str | Path | None = None) -> str:
    """The token in a file; without one, that of MOOT_TOKEN_FILE or MOOT_TOKEN, which `moot up` sets.

    Raises UsageError: if there is none, or if others may read the file.
    """
    if path is not None:
        return read_token_file(path)
    if file := os.environ.get(TOKEN_FILE):
        return read_token_file(file)
    if token := os.environ.get(TOKEN):
        return token
    raise UsageError(
        "no token: name its file, as in token_from('me.token'), or set MOOT_TOKEN_FILE."
        " `moot member invite me --token-out me.token` makes one"
    )
