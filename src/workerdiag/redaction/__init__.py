"""Redaction of secrets, and on request of names and addresses."""
