"""Of a statement only the values vary: what was the same in all that people approved stays the same."""

# ruff: noqa: S608  (no statement here is ever executed)

from __future__ import annotations

import pytest

from moot.errors import UsageError
from moot.values.examples import edge_texts, outside_texts
from moot.values.kinds import ValuePattern
from moot.values.sql import names_a_part, sql_atoms
from moot.values.templates import read_template
from tests.rows import for_each_row
from tests.values.test_values import NAMES, approved, learned


@for_each_row(
    ("text", "values"),
    [
        ("SELECT name FROM orders WHERE id = 5 LIMIT 3 OFFSET 6", ["digits 5", "number 3", "number 6"]),
        ("select a from b where c in (1, 2) and d >= 1.50;", ["number 1", "number 2", "amount 1.50"]),
        ("UPDATE t SET a = 7, b = NULL WHERE id = -1", ["number 7", "number 1"]),
        ("DELETE FROM u WHERE city = 'New York'", ["name New", "name York"]),
        (
            "SELECT a FROM b WHERE day = '2026-01-31' AND mail = 'ada@x.example'",
            ["date 2026-01-31", "stem ada"],
        ),
        ("SELECT a FROM b WHERE c = 'it''s'", ["word it''s"]),
        ("DROP TABLE orders", []),
    ],
)
def test_values_are_told_from_the_rest(text: str, values: list[str]) -> None:
    atoms = sql_atoms(text)
    assert atoms is not None
    assert [f"{atom.role} {atom.text}" for atom in atoms if atom.role != "fixed"] == values


@for_each_row(
    "text",
    [
        "",
        "SELECT 1; DROP TABLE x",
        "SELECT a FROM b -- c",
        "SELECT a /* b */ FROM c",
        "SELECT 'a\\' FROM b",
        "SELECT $$a$$",
        "SELECT a FROM b WHERE c = 1e5",
        "SELECT a FROM b WHERE c = 0x10",
        "SELECT a FROM b WHERE c = 'd",
        "SELECT a FROM b WHERE c = 1'd'",
        "SELECT \u0430 FROM b".encode().decode("unicode_escape"),
    ],
)
def test_what_dialects_read_differently_is_not_read(text: str) -> None:
    assert sql_atoms(text) is None


@for_each_row(
    ("seen", "fine", "wrong"),
    [
        (
            "SELECT name, city FROM customers WHERE id = {}",
            [
                "SELECT name, city FROM customers WHERE id = 77",
                "SELECT  name, city\nFROM customers WHERE id = 17;",
            ],
            [
                "SELECT name, iban, card_number, cvv, date_of_birth, diagnosis FROM customers WHERE id > 0",
                "SELECT name FROM customers WHERE id = 17",
                "SELECT name, cvv FROM customers WHERE id = 17",
                "SELECT city, name FROM customers WHERE id = 17",
                "SELECT name, city FROM customers",
                "SELECT name, city FROM customers WHERE id > 17",
                "SELECT name, city FROM customers WHERE id <> 17",
                "SELECT name, city FROM customers WHERE age = 17",
                "SELECT name, city FROM customers WHERE id = 17 OR 1 = 1",
                "SELECT name, city FROM customers WHERE id = '17'",
                "SELECT name, city FROM customers WHERE id = -17",
                "SELECT name, city FROM customers WHERE id = id",
                "SELECT name, city FROM Customers WHERE id = 7",
                "SELECT name, city FROM customers JOIN cards USING (id) WHERE id = 17",
                "SELECT name, city FROM customers WHERE id = 17 UNION SELECT a, b FROM c",
                "SELECT upper(name), city FROM customers WHERE id = 17",
            ],
        ),
        (
            "UPDATE orders SET status = 'paid' WHERE id = {}",
            ["UPDATE orders SET status = 'paid' WHERE id = 77"],
            [
                "UPDATE orders SET status = 'open' WHERE id = 17",
                "UPDATE orders SET status = 'paid'",
                "UPDATE orders SET status = 'paid', total = 0 WHERE id = 17",
                "UPDATE orders SET total = 'paid' WHERE id = 17",
                "DELETE FROM orders WHERE id = 17",
            ],
        ),
        (
            "SELECT name FROM orders WHERE total > 100 LIMIT {}",
            ["SELECT name FROM orders WHERE total > 100 LIMIT 20"],
            [
                "SELECT name FROM orders WHERE total > 100 LIMIT 900",
                "SELECT name FROM orders WHERE total > 0 LIMIT 20",
                "SELECT name FROM orders WHERE total > 100",
                "SELECT name FROM orders WHERE total > 100 LIMIT -1",
            ],
        ),
        (
            "UPDATE orders SET total = {} WHERE id = 5",
            ["UPDATE orders SET total = 12 WHERE id = 5"],
            ["UPDATE orders SET total = 99 WHERE id = 5", "UPDATE orders SET total = 12 WHERE id = 6"],
        ),
    ],
)
def test_what_never_varied_stays_fixed(seen: str, fine: list[str], wrong: list[str]) -> None:
    rules = learned("sql", [seen.format(n) for n in range(10, 35)])
    assert approved(rules, "sql", [*fine, *wrong]) == fine


def test_a_text_in_a_statement_cannot_become_more_of_it() -> None:
    rules = learned("sql", [f"SELECT id FROM users WHERE name = '{name}'" for name in NAMES])
    fine = ["SELECT id FROM users WHERE name = 'zoe'"]
    wrong = [
        "SELECT id FROM users WHERE name = 'x' OR '1'",
        "SELECT id FROM users WHERE name = 'x' OR 'a' = 'a'",
        "SELECT id FROM users WHERE name = ''",
        "SELECT id FROM users WHERE name = '%'",
        "SELECT id FROM users WHERE name = 'admin'",
        "SELECT id FROM users WHERE name = zoe",
        "SELECT id FROM users WHERE name = 0",
    ]
    assert approved(rules, "sql", [*fine, *wrong]) == fine


def test_what_varies_in_one_statement_does_not_in_another() -> None:
    many = [
        text for n in range(12) for text in (f"SELECT a FROM b WHERE c = {n}", f"SELECT d FROM e LIMIT {n}")
    ]
    rules = learned("sql", many)
    assert approved(rules, "sql", ["SELECT a FROM b WHERE c = 3", "SELECT d FROM e LIMIT 3"]) == [
        "SELECT a FROM b WHERE c = 3",
        "SELECT d FROM e LIMIT 3",
    ]
    assert approved(rules, "sql", ["SELECT a FROM e LIMIT 3", "SELECT d FROM b WHERE c = 3"]) == []


@for_each_row("slot", ["<prose>", "<lines>", "<text>"])
def test_a_rule_for_sql_has_no_slot_that_holds_quotes(slot: str) -> None:
    with pytest.raises(UsageError, match="can hold quotes"):
        ValuePattern("sql", [f"SELECT a FROM b WHERE c = '{slot}'"])


@for_each_row(
    ("template", "named"),
    [
        ("SELECT a FROM b WHERE c = <3 digits>", False),
        ("SELECT a FROM b WHERE c = '<name>' LIMIT <1..5>", False),
        ("SELECT <name> FROM b WHERE c = 'x'", True),
        ("SELECT a FROM <name>", True),
    ],
)
def test_slots_for_names_are_found(template: str, *, named: bool) -> None:
    assert names_a_part(read_template(template)) is named


@for_each_row(
    "template",
    ["SELECT a FROM b WHERE c = <3 digits>", "UPDATE t SET a = <1..50> WHERE b = '<name>'", "DROP TABLE x"],
)
def test_a_rule_shows_what_it_allows_and_what_is_just_outside(template: str) -> None:
    pattern = ValuePattern("sql", [template])
    assert all(map(pattern.admits, edge_texts(pattern)))
    assert not all(map(pattern.admits, outside_texts(pattern)))


def test_a_summary_of_before_approves_no_statement() -> None:
    """Rules of earlier versions said `select columns from orders where`."""
    pattern = ValuePattern("sql", ["select columns from orders where"])
    assert not pattern.admits("SELECT name FROM orders WHERE id = 5")
