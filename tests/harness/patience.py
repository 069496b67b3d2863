"""How long a test waits for what must come: one constant, for processes, pages and gangs alike.

What comes sooner is not waited for, so the constant costs nothing; it ends a test that waits in vain before pytest's own time-out does.
Long runs that share the machine raise it (`SHARDYARD_TEST_PATIENCE_S`).
"""

import os

#: Seconds.
PATIENCE_S = float(os.environ.get("SHARDYARD_TEST_PATIENCE_S") or 60)
#: The same in milliseconds, as Playwright counts.
PATIENCE_MS = 1000 * PATIENCE_S
