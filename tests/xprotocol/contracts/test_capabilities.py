"""Which capability a tool asks for (XP 4.3), and short names in full (D-60)."""

from __future__ import annotations

import pytest

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.xprotocol.contracts.capabilities import (
    check_capabilities,
    contradiction,
    expand_capabilities,
    expand_capability,
    infer_class,
    required_capability,
)
from moot.xprotocol.contracts.contracts import ContractRefused
from moot.xprotocol.contracts.source_overrides import SchemaOverride
from tests.rows import for_each_row
from tests.xprotocol.tool_samples import NAMESPACE, settings


def asked(name: str, annotations: Json = None, **more: Json) -> str:
    return required_capability(name, annotations, settings(**more)).removeprefix(NAMESPACE + ".")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(
            "read_x get_x list_x search_x find_x", "read", marks=pytest.mark.requirement("XP-4.3-2")
        ),
        pytest.param("write_x create_x insert_x add_x", "write", marks=pytest.mark.requirement("XP-4.3-3")),
        pytest.param("update_x edit_x modify_x patch_x", "write", marks=pytest.mark.requirement("XP-4.3-4")),
        pytest.param("delete_x remove_x destroy_x", "delete", marks=pytest.mark.requirement("XP-4.3-5")),
        pytest.param("execute_x run_x invoke_x call_x", "execute", marks=pytest.mark.requirement("XP-4.3-6")),
        pytest.param("admin_x manage_x configure_x", "admin", marks=pytest.mark.requirement("XP-4.3-7")),
        pytest.param(
            "fetch_x readFile read-file Read_file read foo get x_get_y 读取 _get_x",
            "access",
            marks=pytest.mark.requirement("XP-4.3-8"),
        ),
    ],
)
def test_the_prefix_decides_literally(names: str, expected: str) -> None:
    assert {infer_class(name) for name in names.split()} == {expected}
    assert {asked(name) for name in names.split()} == {expected}


@pytest.mark.requirement("XP-3.1-15", "XP-3.1-31", "XP-4.1-14")
def test_auto_is_the_default_and_goes_by_the_name() -> None:
    assert settings().capability_inference == "auto"
    assert required_capability("read_file", None, settings()) == "com.acme.filesystem.read"
    assert asked("read_file", capability_inference="auto", capabilities=("filesystem.admin",)) == "read"


@pytest.mark.requirement("XP-4.3-1")
def test_only_the_first_row_that_fits_counts_and_only_at_the_start_of_the_name() -> None:
    assert infer_class("get_delete_file") == "read"
    assert infer_class("delete_get_file") == "delete"
    assert infer_class("please_delete_file") == "access"


@pytest.mark.requirement("XP-3.1-16", "XP-3.1-17")
def test_explicit_mode_takes_the_listed_capability_of_the_inferred_class() -> None:
    """D-61: never broader than listed."""
    explicit: Json = {
        "capability_inference": "explicit",
        "capabilities": ("filesystem.write", "filesystem.read"),
    }
    assert asked("read_file", **explicit) == "read"
    assert asked("create_file", **explicit) == "write"
    for name in ("delete_file", "fetch_file", "run_job"):
        with pytest.raises(ContractRefused) as refusal:
            asked(name, **explicit)
        assert refusal.value.reason == "capability_not_listed"
        assert "list it" in str(refusal.value)


@pytest.mark.requirement("XP-4.3-9", "XP-3.1-17")
def test_explicit_mode_can_be_finer_than_inference_but_never_leaves_its_list() -> None:
    listed: Json = {
        "capability_inference": "explicit",
        "capabilities": ("filesystem.read", "filesystem.payroll.read-salaries"),
    }
    finer = {"get_salaries": SchemaOverride(required_capability="filesystem.payroll.read-salaries")}
    assert asked("get_salaries", schema_overrides=finer, **listed) == "payroll.read-salaries"
    assert asked("get_names", schema_overrides=finer, **listed) == "read"
    outside = {"get_salaries": SchemaOverride(required_capability="filesystem.admin")}
    with pytest.raises(ContractRefused, match=r"com\.acme\.filesystem\.admin"):
        asked("get_salaries", schema_overrides=outside, **listed)


def test_explicit_mode_does_not_depend_on_the_order_of_its_list() -> None:
    names = ("filesystem.a.read", "filesystem.b.read")
    one = asked("read_x", capability_inference="explicit", capabilities=names)
    assert one == asked("read_x", capability_inference="explicit", capabilities=names[::-1]) == "a.read"


def test_explicit_mode_without_a_list_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="explicit needs it"):
        settings(capability_inference="explicit")


@pytest.mark.requirement("XP-3.1-19")
def test_an_override_is_expanded_and_wins() -> None:
    """D-60."""
    for given in ("filesystem.admin", "com.acme.filesystem.admin", "admin"):
        overrides = {"read_file": SchemaOverride(required_capability=given)}
        assert asked("read_file", schema_overrides=overrides) == "admin"


@for_each_row(
    ("name", "annotations", "auto", "strict"),
    [
        ("read_x", {"destructiveHint": True}, "read", "delete"),
        ("read_x", {"readOnlyHint": False}, "read", "write"),
        ("read_x", {"readOnlyHint": True}, "read", "read"),
        ("read_x", {"readOnlyHint": True, "destructiveHint": True}, "read", "delete"),
        ("read_x", {}, "read", "read"),
        ("read_x", {"destructiveHint": "yes"}, "read", "read"),
        ("read_x", "nonsense", "read", "read"),
        ("fetch_x", {"destructiveHint": True}, "access", "delete"),
        ("fetch_x", {"readOnlyHint": True}, "access", "access"),
        ("write_x", {"destructiveHint": True}, "write", "write"),
        ("write_x", {"readOnlyHint": True}, "write", "write"),
        ("run_x", {"destructiveHint": True}, "execute", "execute"),
    ],
)
def test_strict_mode_takes_the_stricter_of_name_and_annotations(
    name: str, annotations: Json, auto: str, strict: str
) -> None:
    """D-64."""
    assert asked(name, annotations) == auto
    assert asked(name, annotations, capability_inference="strict") == strict


def test_names_and_annotations_that_contradict_each_other_are_told() -> None:
    """D-64: in words for `validate` and the announce."""
    assert "destructiveHint" in (contradiction("get_x", {"destructiveHint": True}) or "")
    assert "readOnlyHint false" in (contradiction("get_x", {"readOnlyHint": False}) or "")
    assert "name says delete" in (contradiction("delete_x", {"readOnlyHint": True}) or "")
    for name, hints in (
        ("get_x", {"readOnlyHint": True}),
        ("write_x", {"destructiveHint": True}),
        ("fetch_x", {"destructiveHint": True}),
        ("get_x", {}),
        ("get_x", None),
    ):
        assert contradiction(name, hints) is None


SEVERAL = ("com.acme.filesystem", "com.salesforce.crm", "org.acme.crm")


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("filesystem.read", "com.acme.filesystem.read"),
        ("filesystem.*", "com.acme.filesystem.*"),
        ("filesystem.a.b", "com.acme.filesystem.a.b"),
        ("com.salesforce.crm.read", "com.salesforce.crm.read"),
    ],
)
def test_short_names_are_written_out(given: str, full: str) -> None:
    """D-60."""
    assert expand_capability(given, SEVERAL) == full
    assert expand_capability(full, SEVERAL) == full


@for_each_row(
    "given", ["crm.read", "read", "mail.read", "acme.filesystem.read", "", ".", "a..b", "a.b c", "*.read"]
)
def test_a_name_that_is_not_one_thing_is_a_mistake(given: str) -> None:
    """D-60: none or several matches."""
    with pytest.raises(UsageError):
        expand_capability(given, SEVERAL)


def test_full_names_win_over_short_ones() -> None:
    assert expand_capability("crm.read", ("crm", "com.acme.crm")) == "crm.read"
    assert expand_capabilities(["read", "crm.read"], ["org.crm"]) == ("org.crm.read",)


def test_mistakes_in_the_settings_show_before_any_tool_comes() -> None:
    check_capabilities(settings(schema_overrides={"x": SchemaOverride(required_capability="read")}))
    for override in ("mail.read", "filesystem.*"):
        with pytest.raises(UsageError):
            check_capabilities(settings(schema_overrides={"x": SchemaOverride(required_capability=override)}))
