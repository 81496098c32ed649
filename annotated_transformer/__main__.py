"""``annotated-transformer`` and ``python -m annotated_transformer``: the command line of
appendix A."""

import os
import sys


def main() -> None:
    """Run the command line.

    Loading PyTorch takes seconds: a Ctrl-C in the meantime ends it without a traceback.
    """
    if sys.argv[1:2] == ["translate"]:
        # A thread that has nothing to do keeps its core busy for some milliseconds, in
        # case work comes. A short line has hundreds of such waits, and beside another
        # busy program they add up to a second. GNU's OpenMP, which PyTorch has on
        # Linux, reads this number, of rounds to wait, when PyTorch is imported.
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    try:
        from annotated_transformer.support.cli import main as commands
    except KeyboardInterrupt:
        sys.exit("Aborted!")
    commands(prog_name="annotated-transformer")


if __name__ == "__main__":
    main()
