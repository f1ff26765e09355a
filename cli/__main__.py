"""The way in: `./afterturn`, `python -m cli`."""

from cli.application import main

if __name__ == "__main__":
    main()
