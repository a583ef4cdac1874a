"""`python -m headstart.cli`."""

from headstart.cli import main

main()
