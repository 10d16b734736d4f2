"""From matches to an incident: which worker processes died, and which evidence belongs to which death."""
