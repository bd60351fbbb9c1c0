"""A setting is a question to the user. 0.2 asked 827 and had 318 options."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.count_settings import all_options, settings_classes

import moot

# A new setting takes the place of one that went (decision 0171).
_MAX_FIELDS: Final = 413
_MAX_OPTIONS: Final = 310


def test_settings_do_not_become_more() -> None:
    counted = {name: len(fields) for name, fields in settings_classes(Path(moot.__path__[0]))}
    assert sum(counted.values()) <= _MAX_FIELDS, "python -m tools.count_settings --list"


def test_options_do_not_become_more() -> None:
    """One that means what another command's means is declared with it, in `cli/options/shared_options.py`."""
    assert len(all_options()) <= _MAX_OPTIONS, "python -m tools.count_settings --list"


def test_fields_are_counted_by_the_name_of_their_class(tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text(
        "class OneSettings:\n    a: int\n    b: str = ''\n    c: ClassVar[int] = 1\n    d = 2\n"
        "class Other:\n    e: int\n"
    )
    assert list(settings_classes(tmp_path)) == [("some.py:OneSettings", ["a", "b"])]
