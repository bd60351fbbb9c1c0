"""Tools, resources and prompts that this member offers, and the requests that arrive for them."""
