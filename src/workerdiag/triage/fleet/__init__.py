"""Report what kills the workers of a whole fleet, from tables of triage and state files of watchers."""
