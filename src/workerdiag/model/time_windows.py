"""
Which deaths belong together, by the time between them.
"""

from __future__ import annotations

#: What happened at most this long before the death in question belongs to it, in seconds.
RECENT_S = 900.0
#: Workers of one host that are lost within this time are lost together, in seconds.
TOGETHER_S = 5.0
