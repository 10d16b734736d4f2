"""What lies where in a death bundle, and how large it may be."""

from __future__ import annotations

#: Shape of the bundle; one more whenever a reader could notice. Readers of an older number still try.
SCHEMA = 1
#: What ``manifest.json`` says under ``kind``: this, and no name of a file, makes a zip archive a bundle.
KIND = "workerdiag death bundle"

MANIFEST = "manifest.json"
DIAGNOSIS = "diagnosis.json"
EVIDENCE = "evidence.json"
VERSIONS = "versions.json"
CONFIGURATION = "configuration.json"
LOG = "logs/{number:04}.txt"

#: Value of ``kind`` for a log in ``evidence.json``; every other one is the name of an evidence class.
LOG_KIND = "Log"

#: Stands in a log's file where lines were left out.
LEFT_OUT = "[workerdiag: lines {first} to {last} were left out here]\n"

#: What a reader takes, in bytes unpacked: of one file, and of all together. A writer keeps 8 MiB,
#: of which 6 MiB are log text and 1 MiB are pieces.
MAX_FILE_BYTES = 8 * 2**20
MAX_BYTES = 24 * 2**20
MAX_FILES = 5_000
#: Commas and brackets in one JSON file: each can take some hundred bytes of memory.
MAX_JSON_MARKS = 500_000
#: Pieces of evidence, and parts of one log. A writer keeps 10,000 pieces.
MAX_PIECES = 20_000
MAX_PARTS = 10_000
