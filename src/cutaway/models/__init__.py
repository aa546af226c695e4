"""One family per file: the paper's figure in code."""
