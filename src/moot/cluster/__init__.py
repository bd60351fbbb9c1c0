"""Several gateways, one space: the log that all of them read, kept by NATS JetStream."""
