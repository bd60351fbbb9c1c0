"""The protocol: envelopes, kinds, capabilities, three dialects. Pure functions: nothing does I/O or logs."""
