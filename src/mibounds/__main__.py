"""``python -m mibounds`` and ``mibounds``: the command line.

Ctrl-C ends it in one line from the beginning: what is imported, which takes a while on a slow disk,
may turn an interruption into any error.
"""

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Run the command line with the arguments of this process."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else it is ignored, as in the background
        signal.signal(signal.SIGINT, _end)
    from mibounds.cli import main

    signal.signal(signal.SIGINT, before)
    return main()


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"mibounds: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
