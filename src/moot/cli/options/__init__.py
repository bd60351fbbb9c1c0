"""Options that several commands have, and what is read out of them."""
