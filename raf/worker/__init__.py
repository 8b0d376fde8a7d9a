"""Workers: they claim the sessions that are due and run them."""
