"""The openers and their handles: what the training program calls."""
