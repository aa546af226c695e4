"""A chat as one text by the model's own template: `template` is the door, `process` runs `worker` in a cage."""
