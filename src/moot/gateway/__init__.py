"""Spaces on real sockets, journaled: `app` wires, `host` runs one space, `sockets` and `http` are doors."""
