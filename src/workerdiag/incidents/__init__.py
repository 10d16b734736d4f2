"""Turns settled deaths into incidents with a diagnosis, which the watcher reports and the dashboard shows."""
