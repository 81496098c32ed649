"""``python -m annotated_transformer``: the command line of appendix A."""

from annotated_transformer.cli import main

if __name__ == "__main__":
    main(prog_name="annotated-transformer")
