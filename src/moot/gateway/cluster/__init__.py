"""Several gateways, one space: what the log brings is carried out here, in the same order everywhere."""
