"""The configuration file: settings, what reads and checks them, and what changed since the last reading."""
