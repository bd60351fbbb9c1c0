"""`make docs`: what the site generator reads, and a check of what it wrote.

    python -m tools.docs_site prepare   writes build/site-source and build/zensical.toml
    python -m tools.docs_site check     checks every link, anchor and resource of build/site

Pages are written for a plain Markdown host first. The site takes them as they are, makes the reference from
the code (tools/make_docs.py), adds pages that stand outside of docs/ (change log, contributing, …), and
points links between them to where they are on the site.
The navigation is the list of pages in docs/index.md: `##` is a tab, `###` a group, each link a page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tools.make_docs import PAGES
from tools.make_docs import page as page_of_code

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"

# Pages and files outside of docs/ that the site has too, and where.
BROUGHT_IN: Mapping[str, str] = {
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "LICENSE": "project/LICENSE.txt",
    "SECURITY.md": "project/security.md",
    "examples/README.md": "examples/spaces.md",
    "examples/two-orgs/README.md": "examples/two-orgs.md",
    "src/moot/console/icon.svg": "pictures/logo.svg",
}

# Pages that search leaves out, so that how-tos and the reference come first: they are read by their lists.
UNSEARCHED = ("decisions/0", "decisions/rulings.md", "project/changelog.md", "conformance.md")
_EXCLUDED = "---\nsearch:\n  exclude: true\n---\n\n"

_LINK = re.compile(r"(!?)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
# Markdown that the generator took for plain text: a table or list without an empty line before it, mostly.
_LEFT_OVER = re.compile(r"```|\|---|\]\(|^\s*[-*] \S", re.MULTILINE)
_VERBATIM = ("code", "pre", "script", "style")
_FENCE = re.compile(r"^ *(`{3,})")
_Nav = list["str | dict[str, str | _Nav]"]


# Before the build


def prepare(root: Path = ROOT, build: Path = BUILD) -> None:
    """Write the pages and the configuration that the generator reads."""
    source = build / "site-source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(root / "docs", source)
    for name in PAGES:
        (source / name.removeprefix("docs/")).write_text(page_of_code(name), "utf-8")
    for file, place in BROUGHT_IN.items():
        (source / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / file, source / place)
    for page in sorted(source.rglob("*.md")):
        place = page.relative_to(source).as_posix()
        head = _EXCLUDED if place.startswith(UNSEARCHED) else ""
        page.write_text(head + relinked(page.read_text("utf-8"), _file_of(place), place, root), "utf-8")
    nav = nav_of((root / "docs" / "index.md").read_text("utf-8"), root)
    settings = (root / "zensical.toml").read_text("utf-8")
    configured = settings.replace("[project]\n", f"[project]\nnav = {as_toml(nav)}\n", 1)
    (build / "zensical.toml").write_text(configured, "utf-8")


def _file_of(place: str) -> str:
    """The file of the repository that stands at a place of the site."""
    return next((file for file, at in BROUGHT_IN.items() if at == place), f"docs/{place}")


def place_of(file: str) -> str | None:
    """Where the site has a file of the repository; None if it has not."""
    if file in BROUGHT_IN:
        return BROUGHT_IN[file]
    return file.removeprefix("docs/") if file.startswith("docs/") else None


def relinked(text: str, file: str, place: str, root: Path = ROOT) -> str:
    """A page with its links pointing to places of the site; a link to what it has not becomes plain text."""
    lines, fence = [], ""
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1] == fence:
            fence = ""
        elif not fence:
            line = _LINK.sub(lambda link: _point(link, file, place, root), line)
        lines.append(line)
    return "".join(lines)


def _point(link: re.Match[str], file: str, place: str, root: Path) -> str:
    picture, words, target = link[1], link[2], link[3]
    path, mark, anchor = target.partition("#")
    if not path or re.match(r"[a-z][a-z0-9+.-]*:", target):
        return link[0]
    wanted = Path(os.path.normpath((root / file).parent / path)).relative_to(root).as_posix()
    if (root / wanted).is_dir() and f"{wanted}/README.md" in BROUGHT_IN:
        wanted = f"{wanted}/README.md"
    there = place_of(wanted)
    if there is None:
        return words
    relative = os.path.relpath(there, Path(place).parent.as_posix() or ".")
    return f"{picture}[{words}]({relative}{mark}{anchor})"


def nav_of(index: str, root: Path = ROOT) -> _Nav:
    """The navigation, from the lists of docs/index.md; decisions follow the page that lists them."""
    nav: _Nav = [{"Home": "index.md"}]
    tab: _Nav = []
    group: _Nav = []
    for line in index.splitlines():
        if line.startswith("## "):
            tab = group = []
            nav.append({line[3:].strip(): tab})
        elif line.startswith("### "):
            group = []
            tab.append({line[4:].strip(): group})
        elif found := re.match(r"- \[([^\]]+)\]\(([^)#\s]+)\)", line):
            place = place_of(os.path.normpath(f"docs/{found[2]}"))
            if place is None:
                raise ValueError(f"docs/index.md: {found[2]} is not on the site")
            group.append({_plain(found[1]): place})
            if place == "decisions/index.md":
                group.extend(_decisions(root))
    return nav


def _decisions(root: Path) -> Iterator[dict[str, str | _Nav]]:
    for path in sorted((root / "docs" / "decisions").glob("[0-9]*.md")):
        title = path.read_text("utf-8").splitlines()[0].lstrip("# ")
        yield {_plain(title): f"decisions/{path.name}"}


def _plain(title: str) -> str:
    return title.replace("`", "")


def as_toml(nav: _Nav | str) -> str:
    if isinstance(nav, str):
        return json.dumps(nav, ensure_ascii=False)
    items = (
        as_toml(each)
        if isinstance(each, str)
        else "{ " + ", ".join(f"{as_toml(title)} = {as_toml(inner)}" for title, inner in each.items()) + " }"
        for each in nav
    )
    return f"[{', '.join(items)}]"


def pages_in(nav: _Nav) -> Iterator[str]:
    for each in nav:
        if isinstance(each, str):
            yield each
        else:
            for inner in each.values():
                yield from [inner] if isinstance(inner, str) else pages_in(inner)


# After it


class _Page(HTMLParser):
    """The ids, links and loaded resources of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.prose = ""
        self._verbatim = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value for name, value in attrs if value is not None}
        if "id" in has:
            self.ids.add(has["id"])
        if tag == "a" and "href" in has:
            self.links.append(has["href"])
        elif tag == "link" and "canonical" not in has.get("rel", "") and "href" in has:
            self.loaded.append(has["href"])
        elif "src" in has:
            self.loaded.append(has["src"])
        self._verbatim += tag in _VERBATIM

    def handle_endtag(self, tag: str) -> None:
        self._verbatim -= tag in _VERBATIM

    def handle_data(self, data: str) -> None:
        self.prose += "" if self._verbatim else data


def check(site: Path = BUILD / "site") -> list[str]:
    """What is wrong with a built site: broken links and anchors, resources of other hosts, stray Markdown."""
    pages = {path: _Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    faults = [] if len(pages) > 1 else [f"{site}: there is no site"]
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        # The page for missing pages is served at any depth, so its links are absolute.
        if name == "404.html":
            continue
        faults += [f"{name}: {found!r} is left as text" for found in _LEFT_OVER.findall(page.prose)]
        for target in page.loaded:
            if urlsplit(target).netloc:
                faults.append(f"{name}: loads {target} from another host")
        for target in [*page.links, *page.loaded]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            there = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            there = there / "index.html" if there.is_dir() else there
            if not there.is_file():
                faults.append(f"{name}: {target}: no such file")
            elif parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].ids:
                faults.append(f"{name}: {target}: no such anchor")
    for sheet in site.rglob("*.css"):
        for address in re.findall(r"url\([\"']?((?:https?:)?//[^)\"']+)", sheet.read_text("utf-8")):
            faults.append(f"{sheet.relative_to(site)}: loads {address} from another host")
    return faults


def main(arguments: list[str]) -> int:
    if arguments == ["prepare"]:
        prepare()
        return 0
    if arguments == ["check"]:
        faults = check()
        print("\n".join(faults) or "the links, anchors and resources of the site are in order")
        return 1 if faults else 0
    print("usage: python -m tools.docs_site prepare | check", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
