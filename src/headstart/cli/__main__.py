"""`python -m headstart.cli`."""

from headstart.cli import main

if __name__ == "__main__":
    main()
