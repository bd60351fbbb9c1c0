"""Contracts, pure: what they say, which values fit, which version follows a change, their capabilities."""
