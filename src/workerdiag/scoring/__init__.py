"""From an incident to findings: the causes, how likely each is, who is to blame, and what to do."""
