"""Stores keep bytes: records of sessions, leases with epochs, and an inbox.

`raf.store.port.Store` is the contract; `memory`, `file` and `sqlite` are the backends of the core.
"""
