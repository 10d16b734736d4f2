"""The work that was computed, as the caller's process knows it: collections, their pieces, data in graphs."""
