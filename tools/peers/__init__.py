"""distributed's own failure tests as a peer suite: what `explain` says of each, against the truth."""
