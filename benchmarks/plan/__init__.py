"""A plan on paper for very many rows on very many devices, and how far its formulas are from real runs."""
