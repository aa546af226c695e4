"""The sub-views of `cutaway inspect`: what a reader asks, which questions of the library answer it."""
