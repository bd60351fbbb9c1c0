"""What a statement reads or destroys is in its summary, or it has none."""

from __future__ import annotations

from moot.values.examples import edge_texts
from moot.values.kinds import ValuePattern
from moot.values.sql import sql_atoms
from tests.rows import for_each_row
from tests.values.test_values import approved, learned


def summary(text: str) -> str | None:
    atoms = sql_atoms(text)
    return None if atoms is None else atoms[0].text


@for_each_row(
    ("text", "expected"),
    [
        ("SELECT name FROM orders WHERE id = 5 LIMIT 3 OFFSET 6", "select columns from orders where limit"),
        (
            "select distinct o.name, count(*) n, round(sum(total), 2) from shop.orders as o "
            "where id in (1, 2) and (name like 'a%' or total between 1 and 2) group by o.name "
            "having count(*) > 1 order by n desc",
            "select columns from shop.orders where",
        ),
        ("SELECT * FROM orders", "select * from orders"),
        ("SELECT o.* FROM orders o WHERE o.id = 1", "select * from orders where"),
        (
            "SELECT o.id FROM orders o JOIN customers c ON c.id = o.customer AND o.land = c.land "
            "WHERE o.id = 1",
            "select columns from orders join customers on customers.id = orders.customer "
            "and customers.land = orders.land where",
        ),
        (
            "SELECT name FROM s.a LEFT OUTER JOIN b USING (y, x) INNER JOIN c ON c.id = a.id",
            "select columns from s.a left join b using (x, y) join c on c.id = s.a.id",
        ),
        ("INSERT INTO prices (id, price) VALUES (1, NULL), (2, -3)", "insert 2 into prices (id, price)"),
        ("DELETE FROM cart WHERE sku = 'a' AND cart.n = 5", "delete from cart where n = number and sku = ?"),
        (
            "UPDATE t SET a = 'x', b = 2, c = NULL, d = TRUE WHERE id = 1",
            "update set a, b = number, c = null, d = boolean of t where id = number",
        ),
        # Two tables to some databases.
        ("SELECT name FROM Orders WHERE id = 5", "select columns from Orders where"),
        ("DELETE FROM Orders WHERE Id = 5", "delete from Orders where Id = number"),
    ],
)
def test_a_summary_says_what_decides_how_much_is_touched(text: str, expected: str) -> None:
    assert summary(text) == expected
    assert summary(text + ";") == expected


@for_each_row(
    "text",
    [
        # Rows that are there are replaced or removed.
        "INSERT OVERWRITE TABLE t (a) VALUES (1)",
        "INSERT OR REPLACE INTO t (a) VALUES (1)",
        "INSERT OR ROLLBACK INTO t (a) VALUES (1)",
        "INSERT INTO t (a) REPLACE WHERE x = 1 VALUES (1)",
        "INSERT INTO t (a) BY NAME VALUES (1)",
        "INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 2",
        "INSERT INTO t (a) VALUES (b)",
        "INSERT INTO t (a) SELECT a FROM u",
        "DELETE t FROM t WHERE id = 5",
        "DELETE FROM t USING t WHERE id = 5",
        "DELETE FROM t WHERE u.id = 5",
        "DELETE FROM t WHERE id = TRUE",
        "DELETE FROM t WHERE id = NULL",
        "UPDATE t SET u.a = 1 WHERE id = 5",
        "UPDATE t SET a = 1 WHERE u.id = 5",
        "UPDATE t SET a = 1 WHERE id = 5 LIMIT 3",
        "UPDATE t SET a = b WHERE id = 5",
        "UPDATE t, t SET a = 1 WHERE id = 5",
        # The whole row.
        "SELECT u FROM users u WHERE id = 5",
        "SELECT users FROM users WHERE id = 5",
        "SELECT USERS FROM shop.users WHERE id = 5",
        "SELECT shop.users FROM shop.users WHERE id = 5",
        "SELECT MAX(u) FROM users u WHERE id = 5",
        "SELECT u.to_jsonb FROM users u WHERE id = 5",
        # Columns that go by another name, or are not of these tables.
        "SELECT HIGH_PRIORITY password FROM users WHERE id = 5",
        "SELECT b FROM users u(a, b) WHERE a = 1",
        "SELECT name FROM users PARTITION (p0) WHERE id = 5",
        "SELECT numbers.nextval FROM users WHERE id = 5",
        "SELECT users.password.value FROM users WHERE id = 5",
        "SELECT AS STRUCT name FROM users WHERE id = 5",
        "SELECT * EXCEPT (a) FROM users WHERE id = 5",
        # No limit, or one for each group.
        "SELECT name FROM users WHERE id = 5 LIMIT ALL",
        "SELECT name FROM users WHERE id = 5 LIMIT NULL",
        "SELECT name FROM users WHERE id = 5 LIMIT -1",
        "SELECT name FROM users WHERE id = 5 LIMIT 1 + 9",
        "SELECT name FROM users WHERE id = 5 LIMIT 1 BY name",
        "SELECT name FROM users WHERE id = 5 GROUP BY ALL",
        "SELECT DISTINCT ON (a) name FROM users WHERE id = 5",
        # True for nearly every row.
        "SELECT name FROM users WHERE name NOT LIKE 'a%'",
        # Every row of the second table.
        "SELECT c.name FROM orders o, customers c WHERE o.id = 5",
        "SELECT c.name FROM orders o CROSS JOIN customers c WHERE o.id = 5",
        "SELECT c.name FROM orders o NATURAL JOIN customers c WHERE o.id = 5",
        "SELECT c.name FROM orders o JOIN customers c ON 1 = 1 WHERE o.id = 5",
        "SELECT c.name FROM orders o JOIN customers c ON c.id = c.id WHERE o.id = 5",
        "SELECT c.name FROM orders o JOIN customers c ON o.id = o.id WHERE o.id = 5",
        "SELECT c.name FROM orders o JOIN customers c ON c.id = o.id OR c.id > 0 WHERE o.id = 5",
        "SELECT c.name FROM orders o JOIN customers c ON c.id > o.id WHERE o.id = 5",
        "SELECT c.name FROM orders o JOIN customers c ON id = customer WHERE o.id = 5",
        "SELECT m.name FROM users u JOIN users m ON m.land = u.land WHERE u.id = 5",
        "SELECT name, (SELECT mail FROM customers WHERE id = 1) FROM orders WHERE id = 5",
        "SELECT s.name FROM (SELECT name FROM customers WHERE id = 1) s WHERE id = 5",
    ],
)
def test_what_is_not_understood_in_full_has_no_summary(text: str) -> None:
    assert summary(text) is None


@for_each_row(
    ("seen", "fine", "wrong"),
    [
        (
            "DELETE FROM sessions WHERE token = 'a{}'",
            "DELETE FROM sessions WHERE token = 'zoe'",
            # To MySQL, nearly every text is 0.
            ["DELETE FROM sessions WHERE token = 0", "DELETE FROM Sessions WHERE token = 'zoe'"],
        ),
        (
            "DELETE FROM cart WHERE owner = {}",
            "DELETE FROM cart WHERE owner = 99",
            ["DELETE FROM cart WHERE owner = 'zoe'", "DELETE FROM cart WHERE owner = TRUE"],
        ),
        (
            "UPDATE users SET city = 'c{0}' WHERE email = 'u{0}@x.example'",
            "UPDATE users SET city = 'c' WHERE email = 'zoe@x.example'",
            [
                "UPDATE users SET city = 'c' WHERE email = 0",
                "UPDATE users SET city = NULL WHERE email = 'zoe@x.example'",
            ],
        ),
        (
            "SELECT o.id, c.name FROM orders o JOIN customers c ON c.id = o.customer WHERE o.id = {}",
            "SELECT x.land FROM orders JOIN customers AS x ON orders.customer = x.id WHERE x.id = 3",
            [
                "SELECT c.name FROM orders o JOIN customers c ON c.land = o.land WHERE o.id = 3",
                "SELECT o.id FROM orders o FULL JOIN customers c ON c.id = o.customer WHERE o.id = 3",
                "SELECT o.id FROM orders o JOIN customers c ON c.id = o.customer",
            ],
        ),
    ],
)
def test_a_rule_does_not_reach_further_than_what_was_seen(seen: str, fine: str, wrong: list[str]) -> None:
    rules = learned("sql", [seen.format(n) for n in range(25)])
    assert approved(rules, "sql", [fine, *wrong]) == [fine]


def test_a_rule_of_before_does_not_reach_numbers() -> None:
    """`?` stood for any value once: now for a text, so that such a rule reaches less and never more."""
    assert summary("DELETE FROM sessions WHERE token = 0") != "delete from sessions where token = ?"
    assert summary("DELETE FROM sessions WHERE token = 'a'") == "delete from sessions where token = ?"


@for_each_row(
    "template",
    [
        "delete from cart where n = number and sku = ?",
        "update set a, b = number, c = null, d = boolean of t where id = number",
        "select columns from orders join customers on customers.id = orders.customer where limit",
        "insert 2 into prices (id, price)",
    ],
)
def test_a_rule_shows_a_statement_that_it_allows(template: str) -> None:
    pattern = ValuePattern("sql", [template])
    assert [pattern.admits(text) for text in edge_texts(pattern)] == [True]
