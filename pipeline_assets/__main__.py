"""`python -m pipeline_assets` runs the command `corpusmill`."""

from pipeline_assets.cli import main

if __name__ == "__main__":
    main()
