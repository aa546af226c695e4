"""What happens when something in the forward pass is changed."""
