"""A kit with what ran when a worker died, and its replay in processes of their own."""
