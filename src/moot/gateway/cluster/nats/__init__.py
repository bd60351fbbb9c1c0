"""What gateways of a cluster share, kept and carried by NATS: the log, snapshots, values, frames."""
