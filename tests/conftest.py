"""What every test runs under."""

import signal

pytest_plugins = ["tests.brokers.plugin"]

# What runs in the background of a shell inherits that Ctrl-C is ignored, and hands that on to every process it starts:
# the tests that press it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
