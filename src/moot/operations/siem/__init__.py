"""What happened in a space, for a SIEM: security events out of the journal, and the ways to send them."""
