"""Files of environment variables: what is written is read back, and what is wrong is named by its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.config.secrets.env_file import MAX_ENV_FILE_BYTES, format_env_text, parse_env_text, read_env_file
from moot.errors import UsageError


def test_the_usual_notations_are_read() -> None:
    text = (
        "# comment\n\nA=1\r\nexport B = two # said\n"
        'C="a\\n\\"b\\" $X \\\\ # no comment"  # one\nD=\'as\\n it is\'\nE=\nF=a#b\nG="two\nlines"\n  H=x'
    )
    assert parse_env_text(text) == {
        "A": "1",
        "B": "two",
        "C": 'a\n"b" $X \\ # no comment',
        "D": "as\\n it is",
        "E": "",
        "F": "a#b",
        "G": "two\nlines",
        "H": "x",
    }


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), st.text()))
def test_what_is_written_is_read_back(variables: dict[str, str]) -> None:
    try:
        assert parse_env_text(format_env_text(variables)) == variables
    except UsageError:
        assert any("\0" in value for value in variables.values())


@pytest.mark.parametrize(
    "line", ["no assignment", "A B=1", '="x"', 'A="not closed', "A='x' y", "1A=x", "A=x\0y"]
)
def test_a_line_that_is_none_is_named_and_not_quoted(line: str) -> None:
    with pytest.raises(UsageError, match=r"^line 3: not NAME=VALUE") as caught:
        parse_env_text(f"A=1\n\n{line}\n")
    assert "closed" not in str(caught.value)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.env"
    with pytest.raises(UsageError, match="there is no file"):
        read_env_file(file)
    file.write_bytes(b"\xef\xbb\xbfKEY=the-key\n")
    file.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600") as caught:
        read_env_file(file)
    assert "the-key" not in str(caught.value)
    file.chmod(0o600)
    assert read_env_file(file) == {"KEY": "the-key"}


def test_a_file_that_is_too_large_is_refused_and_not_cut(tmp_path: Path) -> None:
    file = tmp_path / "x.env"
    file.write_text("#" * (MAX_ENV_FILE_BYTES - 6) + "\nKEY=1")
    file.chmod(0o600)
    assert read_env_file(file) == {"KEY": "1"}
    file.write_text("#" * (MAX_ENV_FILE_BYTES - 5) + "\nKEY=1")
    with pytest.raises(UsageError, match="more than 1048576 bytes"):
        read_env_file(file)
