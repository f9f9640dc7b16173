"""`python -m notification_bus.cli`: the command, where its script is not on the path."""

import sys

from notification_bus.cli import main

sys.exit(main())
