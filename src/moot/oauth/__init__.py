"""An OAuth client: signing in at what protects somebody else's server, and keeping what it gives."""
