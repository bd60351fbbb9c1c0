"""Events on disk, in SQLite: what a relay and an adapter keep until it expires."""
