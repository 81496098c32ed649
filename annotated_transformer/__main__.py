"""``annotated-transformer`` and ``python -m annotated_transformer``: the command line of
appendix A."""

import sys


def main() -> None:
    """Run the command line.

    Loading PyTorch takes seconds: a Ctrl-C in the meantime ends it without a traceback.
    """
    try:
        from annotated_transformer.support.cli import main as commands
    except KeyboardInterrupt:
        sys.exit("Aborted!")
    commands(prog_name="annotated-transformer")


if __name__ == "__main__":
    main()
