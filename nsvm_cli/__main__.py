"""``python -m nsvm_cli`` is ``nsvm``."""

import os
import sys

import nsvm_cli

# Python puts the current folder first on the path, where a file could shadow a library
if not sys.flags.safe_path and sys.path[0] != os.path.dirname(nsvm_cli.__path__[0]):
    del sys.path[0]

from nsvm_cli.cli import main

main()
