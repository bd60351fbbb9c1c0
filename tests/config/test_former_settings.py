"""A file of an earlier version has settings that are none any more: it still starts, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moot.config import former_settings
from moot.config.config_check import check
from moot.config.former_settings import without_former
from moot.config.gateway_config import GatewayConfig
from tests.config.files import NO_ENVIRONMENT, loaded, written
from tests.config.former_constants import CONSTANTS, value_of

SPACES = "spaces: {lab: {participants: {alice: {tokens: [a], capabilities: [chat]}}}}\n"
SAID = "gateway.read_slice_bytes is not a setting any more: it is 65536, and not 6"


def test_a_setting_that_went_is_left_out_and_said_at_the_start(tmp_path: Path) -> None:
    found = loaded(tmp_path, "gateway: {read_slice_bytes: 6, port: 9000}\n" + SPACES)
    assert SAID in found.notes
    assert found.gateway == GatewayConfig(port=9000, data=tmp_path / ".moot")


def test_the_check_of_a_file_says_it_too(tmp_path: Path) -> None:
    file = written(tmp_path, "gateway: {read_slice_bytes: 6}\n" + SPACES)
    assert f"note: {SAID}" in check(file, environ=NO_ENVIRONMENT)


def test_one_in_the_environment_is_no_mistake_either(tmp_path: Path) -> None:
    assert SAID in loaded(tmp_path, SPACES, MOOT_GATEWAY__READ_SLICE_BYTES="6").notes


def test_any_name_and_every_entry_of_a_list_is_meant() -> None:
    former = {"spaces.*.limits.old": 3, "gateway.oidc.old": True}
    document: Any = {
        "spaces": {"a": {"limits": {"old": 1, "kept": 2}}, "b": {}, "c": None},
        "gateway": {"oidc": [{"issuer": "x"}, {"issuer": "y", "old": True}]},
    }
    found, notes = without_former(document, former)
    assert found == {
        "spaces": {"a": {"limits": {"kept": 2}}, "b": {}, "c": None},
        "gateway": {"oidc": [{"issuer": "x"}, {"issuer": "y"}]},
    }
    assert notes == [
        "spaces.a.limits.old is not a setting any more: it is 3, and not 1",
        "gateway.oidc[1].old is not a setting any more: it is true",
    ]
    assert document["spaces"]["a"] == {"limits": {"old": 1, "kept": 2}}


@pytest.mark.parametrize("path", CONSTANTS)
def test_what_is_said_to_hold_holds(path: str) -> None:
    assert value_of(CONSTANTS[path]) == former_settings.MOOT[path]


def test_every_number_that_is_said_to_hold_is_compared() -> None:
    numbers = {path for path, value in former_settings.MOOT.items() if not isinstance(value, str)}
    assert numbers == set(CONSTANTS)
