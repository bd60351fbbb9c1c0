"""`moot join` in full screen (extra `moot[tui]`)."""
