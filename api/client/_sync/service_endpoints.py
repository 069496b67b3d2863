# Generated from api/client/_async/service_endpoints.py; change that file, then run: make sync-client
"""The calls of `Client` about the service and its machines that are one request each."""

from typing import Any

from ....service.schemas.advice import LayoutAdvice
from ....service.schemas.code import CodeArchive
from ....service.schemas.node import Cordon, Node
from ....service.schemas.secret import Secret
from ....service.schemas.server import Server, Template
from ....service.schemas.session import SignInCode
from ....service.spec import JobKind
from .. import advice_requests, requests
from .cluster_endpoints import ClusterEndpoints


class ServiceEndpoints(ClusterEndpoints):
    """Methods of one request each."""

    def nodes(self) -> list[Node]:
        """The cluster's machines."""
        return self._send(requests.nodes())

    def cordon(self, node: str, *, seconds: float | None = None, message: str = "") -> Node:
        """Cordon a machine (id, prefix of an id, or host): no new gangs are placed there for `seconds`; None: until it is lifted."""
        return self._send(requests.cordon(node, seconds, message))

    def uncordon(self, node: str) -> Node:
        """Lift a machine's cordon. Harmless if there is none."""
        return self._send(requests.uncordon(node))

    def cordons(self, *, limit: int = 100) -> list[Cordon]:
        """Cordons with their actor, reason and expiry, newest first."""
        return self._send(requests.cordons(limit))

    def secrets(self) -> list[Secret]:
        """The stored secrets, by name, without their values."""
        return self._send(requests.secrets())

    def set_secret(self, name: str, value: str) -> Secret:
        """Store a secret, in place of the one of this name. Jobs name it in `secrets`."""
        return self._send(requests.set_secret(name, value))

    def remove_secret(self, name: str) -> list[Secret]:
        """Remove a secret, and return the others. Harmless if there is none of this name."""
        return self._send(requests.remove_secret(name))

    def advise(  # noqa: PLR0913 - an option each
        self,
        spec: requests.Spec,
        *,
        world: int | None = None,
        top: int = 10,
        gpu: str | None = None,
        gpus_per_node: int | None = None,
        intra_gbps: float | None = None,
        inter_gbps: float | None = None,
        peak_tflops: float | None = None,
        mfu: float | None = None,
    ) -> LayoutAdvice:
        """The layouts with which a training job is fastest on `world` ranks (default: the spec's), by formulas. Stores nothing.

        None: as known of the GPU model (default: H100), or assumed. Raises `ApiError` as `submit` for the spec.
        """
        hardware = {"gpu": gpu, "gpus_per_node": gpus_per_node, "intra_gbps": intra_gbps, "inter_gbps": inter_gbps}
        wanted = {"world": world, "top": top, **hardware, "peak_tflops": peak_tflops, "mfu": mfu}
        return self._send(advice_requests.advise(requests.document(spec), wanted))

    def job_schema(self, kind: JobKind = "train") -> dict[str, Any]:
        """JSON Schema of the spec of this kind of job."""
        return self._send(requests.job_schema(kind))

    def server(self) -> Server:
        """The control plane's version and enabled features."""
        return self._send(requests.server())

    def sign_in_code(self) -> SignInCode:
        """A code that signs a browser in once, as the fragment of a page's URL: `#code=…`."""
        return self._send(requests.sign_in_code())

    def templates(self) -> list[Template]:
        """Example specs, simplest first."""
        return self._send(requests.templates())

    def code(self, archive: str) -> CodeArchive:
        """An archive of code by its id, the `code.archive` of a job's spec, with its commit and the changes since then."""
        return self._send(requests.code(archive))
