"""The calls about certificates of jobs, each with its request and the type of its response. Both clients use them."""

from ...service.schemas.certificate import Certificate
from ...service.schemas.job import Job
from .requests import _JSON, _of
from .transport import Call


def attach(job: str, certificate: Certificate) -> Call[Job]:
    content = certificate.model_dump_json().encode()
    return Call("PUT", _of(job, "/certificate"), Job.model_validate, content=content, headers=_JSON)


def of_job(job: str) -> Call[Certificate]:
    return Call("GET", _of(job, "/certificate"), Certificate.model_validate)
