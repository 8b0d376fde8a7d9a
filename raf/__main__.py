"""`python -m raf`: the same as the command `raf`."""

from raf.cli import main

if __name__ == "__main__":
    main()
