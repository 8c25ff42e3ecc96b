"""The program ``placeproof``, also ``python -m placeproof``."""

import os
import signal


def main() -> None:
    """Entry point. Until the command line is imported, an interrupt finds nothing to tidy up."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from placeproof.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
