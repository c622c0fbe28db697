"""The command ``nsvm``, which is also ``python -m nsvm_cli``."""

import os
import sys

import nsvm_cli


def main() -> None:
    """Run one command. Ctrl-C ends it with a message, even while modules are imported."""
    try:
        from nsvm_cli.cli import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("nsvm: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    # Python puts the current folder first on the path, where a file could shadow a library
    if not sys.flags.safe_path and sys.path[0] != os.path.dirname(nsvm_cli.__path__[0]):
        del sys.path[0]
    main()
