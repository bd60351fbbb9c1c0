"""How others find this endpoint: the announce event, the well-known pages over HTTP, the DNS record."""
