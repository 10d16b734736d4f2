"""Integrations with other programs: a module for each, with an extra of the same name, and what they share."""
