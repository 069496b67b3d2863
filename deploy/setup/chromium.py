"""Installs Debian's Chromium for the browser tests, if it is missing; never downloads another one."""

import os
import shutil
import subprocess
import sys
import time

#: Seconds to wait for another apt-get. apt-get itself waits for the lock of the packages, and fails at once at the lock of its lists.
LOCK_S = 300
AGAIN_S = 1.0
LOCKED = "Could not get lock"
REMEDY = "install Debian's `chromium` (as root: apt-get install chromium), then run make again"


def as_root() -> list[str] | None:
    """The prefix of a command that must run as root; None if this user cannot become root."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0:
        return [sudo, "-n"]
    return None


def run(command: list[str]) -> int:
    """Run apt-get and return its exit status; waits up to `LOCK_S` seconds for another one's lock."""
    until = time.monotonic() + LOCK_S
    while True:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode == 0 or LOCKED not in done.stderr or time.monotonic() > until:
            print(done.stderr, end="", file=sys.stderr)
            return done.returncode
        time.sleep(AGAIN_S)


def main() -> int:
    if shutil.which("chromium"):
        return 0
    prefix = as_root()
    if prefix is None or not shutil.which("apt-get"):
        print(f"the browser tests need Chromium, and this user may not install it: {REMEDY}", file=sys.stderr)
        return 1
    print("installing Debian's chromium for the browser tests", flush=True)
    environment = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"]
    apt_get = [*environment, "apt-get", "-qq", "-o", f"DPkg::Lock::Timeout={LOCK_S}"]
    for step in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        if run([*apt_get, *step]) != 0:
            print(f"apt-get {step[0]} failed: {REMEDY}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
