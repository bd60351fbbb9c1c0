"""Notifications: people are told outside of Moot what waits for their decision."""
