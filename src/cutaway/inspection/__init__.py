"""Questions about a model, answered by its structure or by a Trace over its one forward path."""
