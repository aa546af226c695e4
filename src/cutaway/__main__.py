"""`python -m cutaway` is the command `cutaway`."""

import sys


def run() -> None:
    """Run the command line. What is interrupted while its modules are loaded ends as quietly as later."""
    try:
        from cutaway.cli.main import run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run()
