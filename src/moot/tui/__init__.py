"""A person's terminal: the operations that it offers, and `moot join` in full screen (extra `moot[tui]`).

Only the modules that draw need Textual; operations and words are for plain terminals as well.
"""
