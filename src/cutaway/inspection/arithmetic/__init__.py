"""How a number came about, operand by operand."""
