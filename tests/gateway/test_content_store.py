"""Large values on disk."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from moot.gateway.content_store import find_content, keep_content


def test_a_value_that_several_send_at_once_is_kept_for_all_of_them(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        for round in range(20):
            folder, data = tmp_path / str(round), os.urandom(1 << 20)
            kept = [pool.submit(keep_content, folder, data, max_total_bytes=1 << 30) for _ in range(4)]
            (digest,) = {each.result() for each in kept}
            path = find_content(folder, digest)
            assert path is not None
            assert path.read_bytes() == data
            assert list(folder.iterdir()) == [path]
