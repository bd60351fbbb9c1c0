"""People say it in other words than tools do."""

from __future__ import annotations

import pytest

from moot.xprotocol.search import Document, SearchIndex
from moot.xprotocol.search.search_query import plain_request, synonyms_of

TOOLS = {
    "create_issue": "Create a new issue in a repository",
    "list_issues": "List issues of a repository",
    "update_issue": "Update an existing issue",
    "create_pull_request": "Create a new pull request in a repository",
    "create_or_update_file": "Create or update a single file in a repository",
    "read_file": "Read a file",
    "delete_file": "Delete a file",
    "create_directory": "Create a directory",
    "list_directory": "List what is in a directory",
    "send_email": "Send an email message",
    "create_event": "Create a calendar event",
    "search_images": "Search images",
}


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("file a bug", "create_issue"),
        ("report a bug", "create_issue"),
        ("raise a new ticket", "create_issue"),
        ("open an issue", "create_issue"),
        ("open a PR", "create_pull_request"),
        ("make a new folder", "create_directory"),
        ("send a mail", "send_email"),
        ("set up a meeting", "create_event"),
        ("look up a photo", "search_images"),
        # Their own words count more.
        ("delete the file", "delete_file"),
        ("list issues", "list_issues"),
    ],
)
def test_everyday_words_find_what_tools_call_otherwise(query: str, name: str) -> None:
    index = SearchIndex()
    for each, description in TOOLS.items():
        index.add(Document.of_tool(each, {"name": each, "description": description}, source="host"))
    assert index.search(query, limit=1)[0].key == name


def test_a_file_stays_a_file() -> None:
    for query in ("open a file", "file the photos", "log the temperature", "submit a form"):
        assert plain_request(query, lambda _: False) == query
    # Tools that say it so, too, keep their word; a bug is never a file.
    assert plain_request("open an issue", {"open"}.__contains__) == "open an issue"
    assert plain_request("file an issue", {"file"}.__contains__) == "create an issue"
    assert synonyms_of("file") == ()
