"""From decisions to suggestions: as far as it was seen and no further, and how sure one may be."""
