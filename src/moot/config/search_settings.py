"""How offers and contracts are searched: whether meanings count beside words."""

from __future__ import annotations

import msgspec

from moot.config.gateway_config import Seconds


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`search:` (*addition*): how tools are found by what they are for."""

    # Whether word vectors count beside words, where the extra `search` has brought them.
    word_vectors: bool = True
    # A search waits this long for vectors that are not there yet (the first one loads them: half a second on
    # a quiet machine), then goes by words alone. What was computed is kept for the next one.
    vector_wait_seconds: Seconds = 5.0
