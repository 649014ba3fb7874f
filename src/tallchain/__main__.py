"""`python -m tallchain` is the command `tallchain`."""

from tallchain.cli import main

main()
