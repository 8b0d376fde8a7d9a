"""What a commit keeps: snapshots, deltas, their bytes, and the manager that commits and restores."""
