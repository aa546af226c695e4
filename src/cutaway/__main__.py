"""`python -m cutaway` is the command `cutaway`."""

from cutaway.cli.main import run

if __name__ == "__main__":
    run()
