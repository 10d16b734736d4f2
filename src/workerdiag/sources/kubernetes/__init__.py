"""Kubernetes: pods, their events and nodes."""
