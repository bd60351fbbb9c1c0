"""One space at work: its journal, what goes out to whom, and how it comes back after a restart."""
