"""The browser tests' Chromium is Debian's: nothing is done where it is there, and no other is ever downloaded."""

import os
import shutil
import subprocess
import sys

REMEDY = "install Debian's `chromium` (as root: apt-get install chromium), then run make again"


def as_root() -> list[str] | None:
    """What must stand before a command that root shall run; None where there is no way."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0:
        return [sudo, "-n"]
    return None


def main() -> int:
    if shutil.which("chromium"):
        return 0
    prefix = as_root()
    if prefix is None or not shutil.which("apt-get"):
        print(f"the browser tests need Chromium, and this user may not install it: {REMEDY}", file=sys.stderr)
        return 1
    print("installing Debian's chromium for the browser tests", flush=True)
    environment = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    for step in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        if subprocess.run([*environment, *step], stdout=subprocess.DEVNULL, check=False).returncode != 0:
            print(f"apt-get {step[0]} failed: {REMEDY}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
