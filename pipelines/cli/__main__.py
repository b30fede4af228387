"""`python -m pipelines.cli`: the `ubert` command."""

from pipelines.cli import main

if __name__ == "__main__":
    main()
