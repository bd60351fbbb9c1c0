"""What a gateway wrote down: reading, checking, keeping and erasing journals, and receipts from them."""
