"""The questions, one a file: its declaration, its numbers, its page."""
