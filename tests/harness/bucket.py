"""A real server that speaks S3 (SeaweedFS), on loopback, behind a port that stays when it is killed and started again."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.control_plane import until

from .patience import PATIENCE_S

WEED = Path(sys.executable).with_name("weed")
LOOPBACK = "127.0.0.1"
#: Where the server makes a socket for each part, which no option moves.
_SOCKETS = Path("/tmp")
#: Kills the server when standard input ends: when the tests' process ends, however it does.
_GUARD = 'cat; kill -9 "$1"'
#: Each part of the server listens twice.
PARTS = ("master", "volume", "filer", "s3")


class Door:
    """A port that stays, and hands each connection on to the server's; while there is none, it closes it."""

    def __init__(self) -> None:
        self.server: int | None = None
        self.loses = 0  # number of answers to drop that confirm an operation
        self.asked: Counter[str] = Counter()  # requests by method and path, such as `GET /bucket/key`
        self._listening = socket.create_server((LOOPBACK, 0), backlog=128)
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._open, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # wakes who waits there
        self._listening.close()

    def _open(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._listening.accept()[:1], daemon=True).start()

    def _serve(self, outside: socket.socket) -> None:
        with outside, contextlib.suppress(OSError), socket.create_connection((LOOPBACK, self.server or 0)) as inside:
            back = threading.Thread(target=self._answer, args=(inside, outside), daemon=True)
            back.start()
            _carry(outside, inside, self._note)
            back.join()

    def _note(self, request: bytes) -> bool:
        """Count a request by its first line. None is lost."""
        method, _, rest = request.partition(b" ")
        if method in (b"GET", b"HEAD"):
            self.asked[f"{method.decode()} {rest.partition(b' ')[0].partition(b'?')[0].decode()}"] += 1
        return False

    def _answer(self, inside: socket.socket, outside: socket.socket) -> None:
        _carry(inside, outside, self._loses)

    def _loses(self, answer: bytes) -> bool:
        if not self.loses or not answer.startswith(b"HTTP/1.1 200"):
            return False
        self.loses -= 1
        return True


def _carry(source: socket.socket, target: socket.socket, loses: Callable[[bytes], bool] = lambda _: False) -> None:
    """Until one end is gone, or something is lost; then both are."""
    with contextlib.suppress(OSError):
        while (data := source.recv(1 << 16)) and not loses(data):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class Buckets:
    """The server. `environment` is what a client of it needs."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sy-s3-"))
        self._door = Door()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._sockets: list[Path] = []
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://{LOOPBACK}:{self._door.port}",
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "of-these-tests",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def asked(self) -> Counter[str]:
        """Requests that have come, by method and path, such as `GET /bucket/key`."""
        return self._door.asked

    @property
    def port(self) -> int | None:
        """Where the server itself listens while it lives."""
        return self._door.server

    def start(self) -> None:
        """Until it answers. Ports that another process took meanwhile are others the next time."""
        for _ in range(5):
            ports = _free_ports(2 * len(PARTS))
            with (self._folder / "log").open("ab") as log:
                self._process = subprocess.Popen(self._command(ports), stdout=log, stderr=log, start_new_session=True)
            guard = ["sh", "-c", _GUARD, "sh", str(self._process.pid)]
            self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True)
            self._sockets = [
                _SOCKETS / f"seaweedfs-{part}-grpc-{port}.sock" for part, port in zip(PARTS, ports[1::2], strict=True)
            ]
            if self._answers(ports[-2]):
                self._door.server = ports[-2]
                return
            self.kill()
        raise AssertionError((self._folder / "log").read_text()[-4000:])

    def kill(self) -> None:
        self._door.server = None
        if self._guard is not None and self._guard.stdin is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGKILL)
            self._guard.wait(PATIENCE_S)
            self._guard.stdin.close()
            self._guard = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE_S)
        for path in self._sockets:
            path.unlink(missing_ok=True)

    def end(self) -> None:
        self.kill()
        self._door.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _command(self, ports: list[int]) -> list[str]:
        key, secret = self.environment["AWS_ACCESS_KEY_ID"], self.environment["AWS_SECRET_ACCESS_KEY"]
        who = {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": ["Admin"]}
        (self._folder / "s3.json").write_text(json.dumps({"identities": [who]}))
        (self._folder / "data").mkdir(exist_ok=True)
        options: dict[str, Any] = {"dir": self._folder / "data", "ip": LOOPBACK, "ip.bind": LOOPBACK, "volume.max": 16}
        options |= {"filer": "true", "filer.localSocket": self._folder / "filer.sock", "master.telemetry": "false"}
        options |= {"master.volumeSizeLimitMB": 64, "s3": "true", "s3.config": self._folder / "s3.json"}
        options |= {"s3.localSocket": self._folder / "s3.sock", "s3.autoCreateBucket": "false", "s3.iam": "false"}
        options |= {"s3.port.iceberg": 0, "s3.port.lance": 0}
        for number, part in enumerate(PARTS):
            options |= {f"{part}.port": ports[2 * number], f"{part}.port.grpc": ports[2 * number + 1]}
        return [
            str(WEED),
            f"-logdir={self._folder}",
            "server",
            *(f"-{name}={value}" for name, value in options.items()),
        ]

    def _answers(self, port: int) -> bool:
        """Whether it comes to life: a list of its buckets needs all of its parts."""
        assert self._process is not None
        process = self._process

        def asked() -> bool:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{LOOPBACK}:{port}/healthz", timeout=5):
                return True
            return process.poll() is not None

        with contextlib.suppress(AssertionError):
            until(asked, PATIENCE_S, "the S3 server")
        return process.poll() is None


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [probe.getsockname()[1] for probe in probes]


@contextlib.contextmanager
def running_buckets(*names: str) -> Iterator[Buckets]:
    """A server with these buckets. Whatever happens, nothing of it stays."""
    buckets = Buckets()
    try:
        buckets.start()
        for name in names:
            make_bucket(buckets, name)
        yield buckets
    finally:
        buckets.end()


def make_bucket(buckets: Buckets, name: str) -> None:
    import s3fs

    key, secret = buckets.environment["AWS_ACCESS_KEY_ID"], buckets.environment["AWS_SECRET_ACCESS_KEY"]
    system = s3fs.S3FileSystem(
        key=key, secret=secret, endpoint_url=buckets.environment["AWS_ENDPOINT_URL"], skip_instance_cache=True
    )
    until(lambda: _made(system, name), PATIENCE_S, f"the bucket {name}")


def _made(system: Any, name: str) -> bool:
    with contextlib.suppress(OSError):  # the server may answer before all of its parts do
        system.call_s3("create_bucket", Bucket=name)
    with contextlib.suppress(OSError):
        system.pipe_file(f"{name}/probe", b"there")
        system.rm_file(f"{name}/probe")
        return True
    return False
