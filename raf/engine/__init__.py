"""Runs workflows in supersteps: plans, executes, applies, commits, shows."""
