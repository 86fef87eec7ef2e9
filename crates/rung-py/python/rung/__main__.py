"""The program: `python -m rung`, and the command `rung` of the wheel."""

import signal
import sys

from . import _native


def main() -> int:
    # The program handles Ctrl-C itself, so Python's handler is removed.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    return _native.program(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
