"""What runs: the canonical description of a graph, its fingerprint, and the built workflow."""
