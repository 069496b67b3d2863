"""A Jupyter server as its page uses it: its API, and a kernel over a WebSocket, in the messages of Jupyter's protocol 5.3."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import httpx2
from httpx2.websockets import WebSocketSession

from .patience import PATIENCE_S

#: What an environment needs for kernels, without the pages of JupyterLab.
PACKAGES = ("jupyter_server==2.21.1", "ipykernel==7.4.0")


class Jupyter:
    """The server at an address with a token, `http://HOST:PORT/?token=TOKEN`."""

    def __init__(self, address: str) -> None:
        self.url, _, self.token = address.partition("/?token=")
        self._http = httpx2.Client(timeout=PATIENCE_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, t: TracebackType | None) -> None:
        self._http.close()

    def status(self, **headers: str) -> int:
        """The HTTP status of the server's own status, for a request with these headers and without cookies."""
        return httpx2.get(f"{self.url}/api/status", headers=headers, timeout=PATIENCE_S, trust_env=False).status_code

    @property
    def authorized(self) -> dict[str, str]:
        return {"Authorization": f"token {self.token}"}

    @contextmanager
    def kernel(self) -> Iterator["Kernel"]:
        """A new kernel, which goes on when its page is closed."""
        started = self._http.post(f"{self.url}/api/kernels", json={}, headers=self.authorized)
        assert started.status_code == httpx2.codes.CREATED, started.text
        address = f"{self.url}/api/kernels/{started.json()['id']}/channels"
        with self._http.websocket(address, headers=self.authorized) as session:
            yield Kernel(session)


class Kernel:
    """An open connection to a kernel."""

    def __init__(self, session: WebSocketSession) -> None:
        self._session = session

    def start(self, code: str) -> str:
        """Begin to run code; returns the number of the message once the kernel has it, which a closed connection then leaves running."""
        number = self._send(code)
        while True:
            kind, content = self._answer(number)
            if kind == "status" and content["execution_state"] == "busy":
                return number

    def run(self, code: str) -> str:
        """The value of the code's last expression, as text."""
        number = self.start(code)
        while True:
            kind, content = self._answer(number)
            assert kind != "error", content
            if kind == "execute_result":
                return str(content["data"]["text/plain"])

    def _send(self, code: str) -> str:
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": "execute_request",
            "username": "",
            "session": uuid.uuid4().hex,
        }
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = {"header": {**header, "version": "5.3"}, "parent_header": {}, "metadata": {}, "content": content}
        self._session.send_json({**message, "channel": "shell", "buffers": []})
        return header["msg_id"]

    def _answer(self, number: str) -> tuple[str, dict[str, Any]]:
        """Kind and content of the next message that answers the one with this number."""
        while True:
            message: dict[str, Any] = self._session.receive_json(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") == number:
                return message["header"]["msg_type"], message["content"]
