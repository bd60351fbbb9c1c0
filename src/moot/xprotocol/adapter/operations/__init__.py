"""What an operator sees and does while the adapter runs: status, metrics, audit, control socket."""
