"""`python -m notification_bus.cli`: the command, for an environment whose scripts are not on the path."""

import sys

from notification_bus.cli import main

sys.exit(main())
