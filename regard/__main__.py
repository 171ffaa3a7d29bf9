"""The start of the command: `regard`, and `python -m regard`, which is how `torchrun -m regard` starts it."""

import signal


def start_command() -> None:
    """Run the command. Ctrl-C while it is imported ends the process at once, without a traceback."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell may have told it to ignore it
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from regard.cli.main import main

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


if __name__ == "__main__":
    start_command()
