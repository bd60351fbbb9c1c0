"""Ordinary envelopes: what the compiled scanner reads by itself (`_scan_envelope.pyx` says which these are).

Without the compiled part, or with MOOT_PURE_PYTHON set, none is ordinary: all are decoded, and hashed, the
careful way, with the same outcome. Whether a text is plain is then looked for in Python.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from moot.protocol.strict_json import is_plain_in_python


def _find_none(*_: object) -> None:
    """Nothing is ordinary."""


if TYPE_CHECKING:
    from moot.protocol._scan_envelope import is_plain as is_plain
    from moot.protocol._scan_envelope import plain_fingerprint as plain_fingerprint
    from moot.protocol._scan_envelope import read_envelope as read_envelope
elif os.environ.get("MOOT_PURE_PYTHON"):
    is_plain, plain_fingerprint, read_envelope = is_plain_in_python, _find_none, _find_none
else:
    try:
        from moot.protocol._scan_envelope import is_plain, plain_fingerprint, read_envelope
    except ImportError:
        is_plain, plain_fingerprint, read_envelope = is_plain_in_python, _find_none, _find_none
