"""``python -m placeproof``."""

from placeproof.cli.main import main

main()
