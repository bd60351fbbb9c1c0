"""Signed and sealed events, pure: made, checked, and what keys, grants and delegations let a sender do."""
