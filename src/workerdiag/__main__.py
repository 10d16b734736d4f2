"""``python -m workerdiag``."""

from workerdiag.cli import main

if __name__ == "__main__":
    main(prog_name="workerdiag")
