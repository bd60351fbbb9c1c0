"""Chat, contexts, reasoning, streams, and the transcript of what was said."""
