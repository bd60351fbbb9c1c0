"""What is recorded about the work: metrics, the audit log, events as lines for people."""
