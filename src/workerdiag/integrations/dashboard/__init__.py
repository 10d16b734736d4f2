"""The page of deaths in the scheduler's dashboard."""
