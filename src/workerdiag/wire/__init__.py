"""What the recorder and the readers of its messages agree on."""
