"""How a workflow is made: the builder, the checks of a graph, and its drawing."""
