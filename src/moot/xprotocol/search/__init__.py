"""Tools found by what somebody wants to do: BM25 over all that they say."""

from moot.xprotocol.search.documents import Document
from moot.xprotocol.search.index import MOST_HITS, Hit, SearchIndex
from moot.xprotocol.search.search_query import QUERY_CHARS

__all__ = ["MOST_HITS", "QUERY_CHARS", "Document", "Hit", "SearchIndex"]
