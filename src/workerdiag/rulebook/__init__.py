"""From ``knowledge/`` to a `Rulebook`: the only room that knows how rules are written in TOML.

A wheel also carries ``knowledge.pickle``, compiled from the TOML files when it is built, because reading that takes
milliseconds and no cattrs.
"""
