"""`python -m regard`, which is how `torchrun -m regard` starts it."""

from regard.cli.main import main

if __name__ == "__main__":
    main()
