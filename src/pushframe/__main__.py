"""`python -m pushframe`: the command, where its script is not on the path."""

from .cli import main

if __name__ == "__main__":  # processes of `--jobs` import this file, too
    main()
