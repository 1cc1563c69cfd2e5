"""The ``rlreps`` command, as installed and as ``python -m rlreps``."""

import os


def main() -> None:
    """Run the command; Ctrl-C while its modules load ends it as it does later."""
    try:
        from rlreps.app.main import main as run

        run()
    except KeyboardInterrupt:
        os.write(2, b"rlreps: interrupted; run the same command again to continue\n")
        os._exit(130)


if __name__ == "__main__":
    main()
