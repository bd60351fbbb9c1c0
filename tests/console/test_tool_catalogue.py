"""The lists of tools that a page asks for, from hosts that page them badly."""

from __future__ import annotations

from moot.protocol.operation import Json
from tests.console.in_node import in_node

LIST = """async (bring, pages) => {
  const { toolCatalogueOf } = await bring("views/tools/tool-catalogue.js");
  const asked = [];
  const member = { present: true };
  const state = {
    me: { id: "alice", capabilities: [{ kind: "*" }] },
    on() {},
    changes: { publish() {} },
    envelopes: { first: 0, next: 0 },
    roster: { get: () => member, isPaused: () => false, namesOf: (ids) => ids },
  };
  const call = async (member, method, params) => {
    asked.push(params?.cursor ?? null);
    return pages[Math.min(asked.length, pages.length) - 1];
  };
  const { status, tools } = await toolCatalogueOf({ state, call }).load("files");
  return { status, tools: tools.map((each) => each.name), asked };
}"""


def page(name: str, cursor: Json) -> Json:
    return {"tools": [{"name": name}], "nextCursor": cursor}


def test_an_empty_cursor_is_followed_and_a_repeated_one_is_not() -> None:
    pages: Json = [page("read", ""), page("write", "b"), page("move", "b"), page("read", "b")]
    found = in_node(LIST, pages)
    assert found == {"status": "known", "tools": ["read", "write", "move"], "asked": [None, "", "b"]}
    assert in_node(LIST, [page("read", None)])["asked"] == [None]
