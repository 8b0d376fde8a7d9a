"""The demo: agents that review a document, killed half-way, resumed, and compared."""
