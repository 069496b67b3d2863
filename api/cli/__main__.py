"""`python -m shardyard.api.cli`: the console script where there is no console script."""

from . import main

main()
