"""Whether another's key may be trusted: the chain of evidence, walked and registered."""
