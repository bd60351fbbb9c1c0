"""Messages that a page reads from the journal while others arrive."""

from __future__ import annotations

import json

import pytest

from moot.protocol.operation import Json
from tests.console.in_node import in_node

CALL: Json = {"method": "tools/call", "params": {"name": "read_file", "arguments": {}}}


def _message(number: int, kind: str = "chat", payload: Json = None) -> str:
    fields: dict[str, Json] = {"protocol": "mew/v0.4", "id": f"m{number}", "from": "agent", "kind": kind}
    fields |= {"ts": f"2026-11-17T14:00:0{number}.000Z", "payload": payload or {"text": str(number)}}
    return json.dumps(fields, separators=(",", ":"))


# The page of the journal comes with what is still under way on the socket; some of that is here by then.
LOAD = """async (bring, { messages, early }) => {
  globalThis.addEventListener = () => {};
  const { State } = await bring("core/state/state.js");
  const { OlderMessages } = await bring("core/connection/older-messages.js");
  const state = new State("lab", { publish() {} });
  const page = `{"messages":[${messages.join(",")}],"before":null,"end":"beginning"}`;
  globalThis.fetch = async () => {
    for (const raw of messages.slice(0, early)) state.receive(raw);
    return new Response(page);
  };
  await new OlderMessages(new URL("http://localhost/"), { space: "lab", token: "t" }, state).load();
  for (const raw of messages.slice(early)) state.receive(raw);
  const order = [];
  for (let n = state.envelopes.first; n < state.envelopes.next; n += 1) order.push(state.envelopes.at(n).id);
  const idsOf = (rows) => rows.map((each) => each.id);
  return { order, open: idsOf(state.proposals.open()), chats: idsOf(state.chats.all) };
}"""


def test_what_arrives_while_the_first_page_is_read_stays_in_order_and_takes_effect() -> None:
    """A page that was opened on an empty space: a proposal was shown, and not among those that wait."""
    messages = [_message(1), _message(2, "mcp/proposal", CALL), _message(3), _message(4)]
    for early in range(len(messages) + 1):
        found = in_node(LOAD, {"messages": messages, "early": early})
        assert found == {"order": ["m1", "m2", "m3", "m4"], "open": ["m2"], "chats": ["m1", "m3", "m4"]}, (
            early
        )


FORGE = """async (bring, { message, forged }) => {
  globalThis.addEventListener = () => {};
  const { State } = await bring("core/state/state.js");
  const state = new State("lab", { publish() {} });
  state.addOlder([message]);
  state.receive(forged);
  return [state.proposals.open().length, state.envelopes.size, state.envelopes.byId("m1").from];
}"""


def test_an_id_from_the_journal_lends_its_author_to_nobody() -> None:
    message = _message(1, "mcp/proposal", CALL)
    forged = message.replace('"agent"', '"mallory"')
    assert in_node(FORGE, {"message": message, "forged": forged}) == [0, 1, "agent"]


GAP = """async (bring, { messages }) => {
  globalThis.addEventListener = () => {};
  const { State } = await bring("core/state/state.js");
  const { OlderMessages, END_TEXTS } = await bring("core/connection/older-messages.js");
  const { readMissed } = await bring("core/connection/missed-messages.js");
  const state = new State("lab", { publish() {} });
  const page = `{"messages":[${messages.join(",")}],"before":null,"end":"beginning","gap":true}`;
  globalThis.fetch = async () => new Response(page);
  const older = new OlderMessages(new URL("http://localhost/"), { space: "lab", token: "t" }, state);
  await older.load();
  const missed = await readMissed(older, (id) => id === "m1");
  return [END_TEXTS[older.reason], missed.isWhole, missed.reason];
}"""


def test_history_that_lacks_messages_is_not_called_whole() -> None:
    text, is_whole, reason = in_node(GAP, {"messages": [_message(1), _message(2)]})
    assert "Messages in between are missing" in text
    assert not is_whole
    assert "could not write its journal for a while" in reason


ENDS = """async (bring, { rest }) => {
  globalThis.addEventListener = () => {};
  const { State } = await bring("core/state/state.js");
  const { OlderMessages, END_TEXTS } = await bring("core/connection/older-messages.js");
  const { readMissed } = await bring("core/connection/missed-messages.js");
  globalThis.fetch = async () => new Response(`{"messages":[],"before":null,${rest}}`);
  const state = new State("lab", { publish() {} });
  const older = new OlderMessages(new URL("http://localhost/"), { space: "lab", token: "t" }, state);
  await older.load();
  return [END_TEXTS[older.reason], (await readMissed(older, () => false)).reason];
}"""


@pytest.mark.parametrize(
    ("rest", "text"),
    [
        ('"end":"removed","elsewhere":true', "gateway that answers"),
        ('"end":"removed"', "removed from the journal"),
        ('"end":"a word of later"', "gateway"),
        ('"end":null', "gateway"),
    ],
)
def test_only_the_beginning_is_called_the_beginning(rest: str, text: str) -> None:
    older, missed = in_node(ENDS, {"rest": rest})
    assert text in older
    assert text in missed
    assert "beginning" not in older


_GOES_ON = """async (bring) => {
  globalThis.addEventListener = () => {};
  const { State } = await bring("core/state/state.js");
  const { TimelineSearch } = await bring("views/timeline/timeline-search.js");
  const state = new State("lab", { publish() {} });
  const chat = (id, text) => JSON.stringify({ protocol: "mew/v0.4", id, ts: "2026-01-01T00:00:00Z",
    from: "ana", kind: "chat", payload: { text } });
  state.receive(chat("m9", "nothing like it"));
  const pages = [[], [chat("m2", "the needle")], [chat("m1", "a needle")]];
  async function* search() {
    for (const [index, raws] of pages.entries())
      yield {
        raws, before: index < 2 ? 9 - index : null, end: index < 2 ? null : "beginning", hasGap: false };
  }
  const told = [];
  let woken = () => {};
  const older = { status: "more", reason: "", search };
  const found = new TimelineSearch({ state, older }, (isOlder) => {
    if (isOlder) told.push(`${found.olderState.none} ${found.older?.status} ${found.olderState.found}`);
    woken();
  });
  const reached = async (status) => {
    while (found.older?.status !== status) await new Promise((go) => (woken = go));
  };
  found.start(state.activity, found.read("needle"));
  await reached("paused");
  found.searchOlder();
  await reached("done");
  return [told.includes("1 paused 1"), told.at(-1)];
}"""


def test_a_search_without_a_match_goes_on_until_the_first_and_further_when_asked() -> None:
    assert in_node(_GOES_ON) == [True, "1 done 2"]
