"""How offers and contracts are searched: whether meanings count beside words, and at which cost."""

from __future__ import annotations

import msgspec

from moot.config.gateway_config import Positive, Seconds


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`search:` (*addition*): how tools are found by what they are for."""

    # Whether word vectors count beside words, where the extra `search` has brought them.
    word_vectors: bool = True
    # Tools, prompts and resources that get a vector: some 0.4 ms of CPU and 1 KiB each. Of a larger
    # number none has one, and the search is by words alone.
    max_vector_tools: Positive = 10_000
    # Of each text of a tool (name, description, parameters) so many characters count for its vector: more
    # than the longest description of 3,000 real tools has. Words count beyond that.
    max_vector_chars: Positive = 4_096
    # A search waits this long for vectors that are not there yet (the first one loads them: half a second on
    # a quiet machine), then goes by words alone. What was computed is kept for the next one.
    vector_wait_seconds: Seconds = 5.0
