"""Tools and questions with their right answers: public benchmarks where they lie beside us, else a sample.

The files are `tool_catalog.jsonl` and `tool_queries.jsonl` in ../shared/data, or where MOOT_SHARED_DATA says;
every data set in them (`ds`) is one set here. Our own sample is for machines without them: it shows that the
bench runs, and is too small to tell one method from another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moot.xprotocol.search import Document

ROOT: Final = Path(__file__).resolve().parents[1]
SAMPLE: Final = "sample"


@dataclass(frozen=True, slots=True)
class Query:
    """A question, and the keys of the tools that answer it."""

    text: str
    right: frozenset[str]


@dataclass(frozen=True, slots=True)
class SearchSet:
    """A catalogue of tools, and questions to it."""

    name: str
    documents: tuple[Document, ...]
    queries: tuple[Query, ...]


def folder() -> Path:
    return Path(os.environ.get("MOOT_SHARED_DATA", ROOT.parent / "shared" / "data"))


def sets() -> list[SearchSet]:
    """The public sets, or our own sample when there are none."""
    catalog, queries = folder() / "tool_catalog.jsonl", folder() / "tool_queries.jsonl"
    if not (catalog.is_file() and queries.is_file()):
        return [sample()]
    documents: dict[str, list[Document]] = {}
    for tool in _lines(catalog):
        documents.setdefault(tool["ds"], []).append(_document(tool))
    asked: dict[str, list[Query]] = {}
    for query in _lines(queries):
        asked.setdefault(query["ds"], []).append(Query(query["query"], frozenset(query["gold"])))
    return [SearchSet(ds, tuple(found), tuple(asked.get(ds, ()))) for ds, found in documents.items()]


def sample() -> SearchSet:
    documents = [
        Document(key=f"{source}/{name}", name=name, source=source, description=description, parameters=rest)
        for source, name, description, rest in _TOOLS
    ]
    queries = [Query(text, frozenset(right.split())) for text, right in _QUERIES]
    return SearchSet(SAMPLE, tuple(documents), tuple(queries))


def _document(tool: dict[str, Any]) -> Document:
    parameters = tool.get("params") or []
    return Document(
        key=tool["id"],
        name=tool["name"],
        source=f"{tool.get('server') or ''} {tool.get('domain') or ''}".strip(),
        description=tool.get("description") or "",
        parameter_names="\n".join(name for name, _ in parameters),
        parameters="\n".join(text or "" for _, text in parameters),
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.isspace():
                yield json.loads(line)


_TOOLS: Final = (
    ("files", "read_file", "Read the contents of a file at a path", "path of the file, encoding"),
    ("files", "write_file", "Write text to a file, replacing what was there", "path, text"),
    ("files", "delete_file", "Delete a file for good", "path"),
    ("files", "list_directory", "List the entries of a directory with their sizes", "path, recursive"),
    ("crm", "listOpportunities", "List sales opportunities by stage and owner", "stage, owner, limit"),
    ("crm", "createContact", "Add a new contact to the address book", "name, email, telephone"),
    ("crm", "merge-contacts", "Merge two contacts that are the same person", "first id, second id"),
    ("sky", "current_weather", "Weather right now: temperature, wind, humidity", "city, unit"),
    ("sky", "weather_forecast", "Forecast for the next days", "city, number of days"),
    ("sky", "sunrise", "When the sun rises and sets", "city, date"),
    ("money", "convert_currency", "Convert an amount from one currency to another", "amount, from, to"),
    ("money", "compound_interest", "Compute compound interest on a deposit", "principal, yearly rate, years"),
    ("money", "loan_payment", "Monthly payment of a loan", "principal, yearly interest rate, months"),
    ("mail", "send_email", "Send an email with a subject and a text", "to, subject, text"),
    ("mail", "search_inbox", "Search messages in the inbox", "words, sender, since"),
    ("mail", "unsubscribe", "Stop a newsletter from coming", "sender"),
    ("code", "GitHub_search", "Search source code on GitHub", "query, language"),
    ("code", "open_issue", "Open an issue in a GitHub repository", "repository, title, body"),
    ("code", "run_tests", "Run the test suite and report failures", "path, pattern"),
    ("music", "play_song", "Play a song on a speaker", "title, artist, room"),
    ("music", "make_playlist", "Make a playlist of songs of one mood", "mood, length"),
    ("maps", "route", "Directions from one place to another by car, bicycle or on foot", "start, end, mode"),
    ("maps", "nearby_places", "Find restaurants, shops and sights near a place", "place, category, radius"),
    ("todo", "add_todo", "Add an entry to the to-do list", "text, due date"),
)
_QUERIES: Final = (
    ("What does notes.txt say?", "files/read_file"),
    ("Please show me which files are in my home directory", "files/list_directory"),
    ("get rid of the file old.log", "files/delete_file"),
    ("which sales opportunities are in the closing stage?", "crm/listOpportunities"),
    ("I have two contacts for the same person, merge them", "crm/merge-contacts"),
    ("how warm is it in Oslo right now", "sky/current_weather"),
    ("weather forecast for Lisbon for the next 5 days", "sky/weather_forecast"),
    ("When will the sun set in Kyoto?", "sky/sunrise"),
    ("convert 250 dollars to yen", "money/convert_currency"),
    ("how much compound interest do I get on 1000 over 10 years at 3 %", "money/compound_interest"),
    ("what would I pay monthly for a loan of 200000?", "money/loan_payment"),
    ("email Anna that I am late", "mail/send_email"),
    ("search my messages from the bank since May", "mail/search_inbox"),
    ("stop that newsletter", "mail/unsubscribe"),
    ("search github for usages of asyncio.timeout", "code/GitHub_search"),
    ("run the tests and tell me the failures", "code/run_tests"),
    ("play something by Nina Simone in the living room", "music/play_song"),
    ("how do I get from the station to the museum by bicycle?", "maps/route"),
    ("restaurants near the harbour", "maps/nearby_places"),
    ("put milk on my todo list", "todo/add_todo"),
    (
        "Convert 10 euros to pounds. Then send an email to Tom with the sum.",
        "money/convert_currency mail/send_email",
    ),
    ("Open an issue for the bug. Afterwards run the test suite again.", "code/open_issue code/run_tests"),
)
