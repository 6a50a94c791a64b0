"""`python -m atoll`: the `atoll` command, where its script is not on the path."""

from atoll.cli.main import main

if __name__ == "__main__":
    main()
