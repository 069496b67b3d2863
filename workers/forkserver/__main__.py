"""`python -m shardyard.workers.forkserver LISTENER OWNER FOLDER`: the server's process.

`LISTENER` is the descriptor of its bound socket, `OWNER` the process with which it ends, `FOLDER` its private folder.
"""

import gc
import importlib
import socket
import sys
import traceback
from pathlib import Path
from typing import Final, NoReturn

from ..messages import rank_event
from .server import Server

#: What a trainer needs; importing it is nearly all of a trainer's start-up time.
PRELOAD: Final = (
    "numpy",
    "torch",
    "torch.distributed",
    "torch.distributed.device_mesh",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor",
    "torch.distributed.tensor.parallel",
)
#: The package of all workers, whatever its parents are called.
WORKERS: Final = str(__package__).removesuffix(".forkserver")


def preload() -> None:
    """Import and prepare what trainers need. An import that fails here fails again in the trainer, which reports it to the user."""
    own = [f"{WORKERS}.{name}" for name in ("trainer.main", "trainer.assemble", "spec")]
    for name in (*PRELOAD, *own):
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001  (start of a process: importing runs other packages' code)
            traceback.print_exc()
    rank_event.prepare()
    gc.collect()
    gc.freeze()  # keep imported objects in pages shared with children: a child's garbage collector must not write to them


def main() -> NoReturn:
    listener = socket.socket(fileno=int(sys.argv[1]))
    server = Server(listener, int(sys.argv[2]), Path(sys.argv[3]))
    preload()
    server.serve()


if __name__ == "__main__":
    main()
