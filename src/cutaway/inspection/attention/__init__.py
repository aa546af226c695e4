"""What the heads of a stack weigh."""
