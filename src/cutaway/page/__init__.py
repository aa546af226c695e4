"""A page: an answer laid out once, in both languages, and drawn in a terminal, as HTML or as SVG."""
