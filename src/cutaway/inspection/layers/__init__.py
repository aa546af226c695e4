"""What the layers say, remember and whom they ask."""
