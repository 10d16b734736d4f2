"""Finds signs in evidence: the only room that runs patterns."""
