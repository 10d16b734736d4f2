"""Sources that query batch systems, with their own commands, about the jobs in which workers died."""
