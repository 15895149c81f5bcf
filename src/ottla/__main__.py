"""`python -m ottla` is the command `ottla`."""

import sys

from ottla.cli import main

sys.exit(main())
