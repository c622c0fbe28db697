"""``python -m nsvm_cli`` is ``nsvm``."""

from nsvm_cli.cli import main

main()
