"""Where the watcher's deaths come from: a scheduler with the flight recorder, or the events of one without."""
