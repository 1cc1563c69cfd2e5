"""The ``rlreps`` command, as installed and as ``python -m rlreps``."""

from rlreps.app.main import main

if __name__ == "__main__":
    main()
