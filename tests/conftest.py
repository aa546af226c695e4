"""What every test may count on."""

import os
import signal

# Models here are tiny: a second thread only waits for the first, and dearly on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what runs in the background deaf to SIGINT, and its children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.command"]
