"""``python -m mibounds``: the command line."""

import sys

from mibounds.cli import main

if __name__ == "__main__":
    sys.exit(main())
