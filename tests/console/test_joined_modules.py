"""Modules that are sent joined do what they do one by one."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from moot.gateway.http.joined_modules import in_order, join_rest, join_start, without_comments
from tests.console.gateway_and_members import Running
from tests.console.in_node import in_node
from tests.waiting import HANG_SECONDS

ROOT = Path(__file__).parents[2] / "src/moot/console"
MODULES = {
    "start.js": """import { said } from "./core/said.js";
import {
  Counter as Count,
  step,
} from "./core/counter.js";
const later = await import("./views/later.js");
const count = new Count();
count.add(step);
const { twice: again } = await import("./views/" + "other.js");
export const result = { said, count: count.sum, later: later.words(), again };
""",
    "core/said.js": """export const said = ["said"];
""",
    "core/counter.js": """import { said } from "./said.js";
said.push("counter");
export class Counter {
  sum = 0;
  /** @param {import("./said.js").Said} number */
  add(number) { this.sum += number; }
}
const step = 3;
export { step };
""",
    "views/later.js": """import { said } from "../core/said.js";
import { twice } from "./other.js";
said.push("later");
function load() { return "its own"; }
export async function* none() {}
const style = new URL("x.css", import.meta.url).href;
export function words() { return [load(), twice, style.split("/").slice(-2)]; }
""",
    "views/other.js": """import { said } from "../core/said.js";
said.push("other");
export const twice = said.length * 2;
""",
}


def test_they_run_once_in_the_same_order_and_give_the_same(tmp_path: Path) -> None:
    single, joined = tmp_path / "single", tmp_path / "joined"
    for name, text in MODULES.items():
        (single / name).parent.mkdir(parents=True, exist_ok=True)
        (single / name).write_text(text, "utf-8")
    joined.mkdir()
    # Of what the first module gives, nobody asks in a page; here the result is asked for.
    start = join_start("start.js", MODULES, "rest.js")
    (joined / "start.js").write_text(f"{start}\nexport {{ result }};", "utf-8")
    (joined / "rest.js").write_text(join_rest("start.js", MODULES), "utf-8")
    for folder in (single, joined):
        (folder / "package.json").write_text('{"type": "module"}', "utf-8")
    one, other = in_node(
        "async (bring, given) => Promise.all(given.map(async (each) => (await bring(each)).result))",
        [(folder / "start.js").as_uri() for folder in (single, joined)],
    )
    assert one == other
    assert one == {
        "said": ["said", "counter", "other", "later"],
        "count": 3,
        "later": ["its own", 6, ["views", "x.css"]],
        "again": 6,
    }


@pytest.mark.parametrize(
    "text",
    [
        'import "./core/said.js";',
        'import all from "./core/said.js";',
        'import * as all from "./core/said.js";',
        'export * from "./core/said.js";',
        'export { said } from "./core/said.js";',
        "export default 1;",
        "export let changes = 1;",
        "export const { a, b } = {};",
        "const $need = 1;",
    ],
)
def test_what_would_mean_something_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be joined"):
        join_rest("start.js", {**MODULES, "views/new.js": text})


def test_what_is_left_out_are_comments_and_the_lines_stay() -> None:
    """What looks like a comment within a text of several lines would be a part of that text."""
    texts = {path.name: path.read_text("utf-8") for path in ROOT.rglob("*.js")}
    pairs = [(text, without_comments(text)) for text in texts.values()]
    assert [text.count("\n") for text, _ in pairs] == [joined.count("\n") for _, joined in pairs]
    # A compiler reads both, and writes them without any comment.
    same = in_node(
        """async (_, pairs) => {
          const { stripTypeScriptTypes } = await import("node:module");
          const program = (text) => stripTypeScriptTypes(text, { mode: "transform" });
          return pairs.map(([text, joined]) => program(text) === program(joined));
        }""",
        pairs,
    )
    assert [name for name, is_same in zip(texts, same, strict=True) if not is_same] == []


def test_a_circle_is_refused() -> None:
    circle = {"a.js": 'import { b } from "./b.js";', "b.js": 'import { a } from "./a.js";'}
    with pytest.raises(ValueError, match=r"in a circle: a\.js b\.js a\.js"):
        in_order(["a.js"], circle)


def test_a_page_is_two_scripts_and_each_module_is_in_one_of_them(gateway: Running) -> None:
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=HANG_SECONDS) as http:
        (app,) = re.findall(r'<script type="module" src="([^"]+)"', http.get("/").text)
        scripts = [http.get(f"/{app}"), http.get(f"/{app.replace('app.js', 'views.js')}")]
    assert [each.headers["content-type"] for each in scripts] == ["text/javascript; charset=utf-8"] * 2
    assert {each.headers["cache-control"] for each in scripts} == {"public, max-age=31536000, immutable"}
    first, rest = (set(re.findall(r'^\$define\("([^"]+)"', each.text, re.M)) for each in scripts)
    ours = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.js")} - {
        "app.js",
        "start.js",
        "service-worker.js",
    }
    assert first | rest == ours
    assert first & rest == set()
    assert "views/shell/sign-in.js" in first
    assert "views/shell/shell.js" in rest
