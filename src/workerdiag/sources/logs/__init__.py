"""Logs, whatever they are packed in."""
