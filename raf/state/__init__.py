"""The state of a session: scopes of keys, reducers, and what a node sees of them."""
