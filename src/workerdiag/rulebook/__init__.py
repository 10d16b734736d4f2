"""From ``knowledge/`` to a `Rulebook`: the only room that knows TOML and cattrs hooks.

TOML files are the source. A wheel also carries ``knowledge.json``, compiled from them when
it is built, because reading that takes milliseconds and no cattrs.
"""
