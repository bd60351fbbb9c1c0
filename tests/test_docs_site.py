"""The site is made of the pages as they stand: none is missing in its navigation, and no link is lost."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tools.docs_site import as_toml, check, nav_of, pages_in, prepare, relinked

from tests.test_docs import PAGE_NAMES, ROOT, text_of


def test_every_page_of_the_documentation_is_in_the_navigation() -> None:
    """A page is put there by a line in docs/index.md."""
    shown = set(pages_in(nav_of(text_of("docs/index.md"))))
    written = {page.removeprefix("docs/") for page in PAGE_NAMES if page.startswith("docs/")}
    assert written <= shown
    assert {"project/changelog.md", "project/security.md", "examples/spaces.md"} <= shown


def test_sections_of_the_index_become_tabs_and_groups() -> None:
    index = "# Title\n## One\n- [A](a.md): words\n### Group\n- [`B`](b/b.md)\n\ntext\n"
    index += "## Two\n- [C](../CHANGELOG.md)\n"
    assert nav_of(index) == [
        {"Home": "index.md"},
        {"One": [{"A": "a.md"}, {"Group": [{"B": "b/b.md"}]}]},
        {"Two": [{"C": "project/changelog.md"}]},
    ]


def test_a_page_that_the_site_has_not_cannot_be_in_the_navigation() -> None:
    with pytest.raises(ValueError, match="not on the site"):
        nav_of("## One\n- [Code](../src/moot/errors.py)\n")


@pytest.mark.parametrize(
    ("file", "place", "written", "expected"),
    [
        ("docs/index.md", "index.md", "[a](../CHANGELOG.md#x)", "[a](project/changelog.md#x)"),
        ("CONTRIBUTING.md", "project/contributing.md", "[a](docs/faq.md)", "[a](../faq.md)"),
        (
            "docs/topics/a.md",
            "topics/a.md",
            "[a](../../examples/two-orgs/README.md)",
            "[a](../examples/two-orgs.md)",
        ),
        (
            "docs/a.md",
            "a.md",
            "![p](pictures/p.png) [w](https://a.b/c)",
            "![p](pictures/p.png) [w](https://a.b/c)",
        ),
        ("SECURITY.md", "project/security.md", "see [the code](src/moot/errors.py)", "see the code"),
        (
            "docs/a.md",
            "a.md",
            "```\n[a](../CHANGELOG.md)\n```\n[b](#c)",
            "```\n[a](../CHANGELOG.md)\n```\n[b](#c)",
        ),
    ],
)
def test_links_point_to_where_things_are_on_the_site(
    file: str, place: str, written: str, expected: str
) -> None:
    assert relinked(written, file, place) == expected


def test_the_prepared_site_has_the_navigation_and_search_leaves_out_what_is_read_by_its_list(
    tmp_path: Path,
) -> None:
    """So that a question finds the how-to first, and not the decision or the change behind it."""
    prepare(build=tmp_path)
    project = tomllib.loads((tmp_path / "zensical.toml").read_text("utf-8"))["project"]
    assert project["nav"] == nav_of(text_of("docs/index.md"))
    assert project["theme"]["font"] is False
    there = {path.relative_to(tmp_path / "site-source").as_posix() for path in tmp_path.rglob("*.md")}
    assert there == set(pages_in(project["nav"])) | {"examples/two-orgs.md"}
    assert (tmp_path / "site-source" / project["theme"]["logo"]).read_bytes() == (
        ROOT / "src/moot/console/icon.svg"
    ).read_bytes()
    source = tmp_path / "site-source"
    left_out = {
        page.relative_to(source).as_posix()
        for page in source.rglob("*.md")
        if page.read_text("utf-8").startswith("---\nsearch:\n  exclude: true\n---\n\n# ")
    }
    assert {"project/changelog.md", "decisions/0001-string-patterns-match-only-strings.md"} <= left_out
    assert not [page for page in left_out if page.startswith(("how-to/", "reference/", "topics/"))]
    assert "decisions/index.md" not in left_out


def test_titles_are_written_as_toml_can_be_read() -> None:
    nav = nav_of('## A "quoted" title\n- [Größe \\ more](a.md)\n')
    assert tomllib.loads(f"nav = {as_toml(nav)}")["nav"] == nav


def test_the_check_of_a_built_site_finds_what_is_broken(tmp_path: Path) -> None:
    page = '<link href="a.css" rel="stylesheet"><h1 id="top"></h1>'
    (tmp_path / "a.css").write_text("@font-face {src: url(https://fonts.example/a.woff)}", "utf-8")
    (tmp_path / "index.html").write_text(
        f'{page}<a href="b.html#there"></a><a href="b.html#gone"></a><a href="c.html"></a>'
        '<a href="https://example.org/"></a><script src="https://cdn.example/x.js"></script>'
        "<p>text |---| <code>|---|</code></p>",
        "utf-8",
    )
    (tmp_path / "b.html").write_text(f'{page}<p id="there"></p><a href="#top"></a><a href="."></a>', "utf-8")
    assert check(tmp_path) == [
        "index.html: '|---' is left as text",
        "index.html: loads https://cdn.example/x.js from another host",
        "index.html: b.html#gone: no such anchor",
        "index.html: c.html: no such file",
        "a.css: loads https://fonts.example/a.woff from another host",
    ]


def test_a_site_that_was_not_built_is_not_in_order(tmp_path: Path) -> None:
    assert check(tmp_path) == [f"{tmp_path}: there is no site"]
