"""What keeps the system going under load and failure: rate limits, back-off, restarts, child processes."""
