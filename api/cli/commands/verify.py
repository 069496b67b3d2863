"""`shardyard verify`: a spec's layout and one process train the same on this machine, in float64; a certificate says how far they differ.

Takes no control plane unless a job is named. The certificate is JSON that is signed with this user's key, and a page of HTML beside it.
"""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from ....service.certificate_signature import KeyUnusable, SignatureInvalid, fingerprint, signed
from ....service.schemas.certificate import Certificate, NumbersCompared
from ....service.schemas.resource import CommVolume
from ....service.settings import Settings
from ....service.spec import JobSpec
from ....workers.certificate.exact_spec import LEAST_STEPS
from ... import spec_file
from ...certificate_page import one_process, page
from ...client import Client
from ...errors import InvalidParameter
from ...http.validation_errors import read_training_spec
from ..exit_codes import ExitCode
from ..job_names import job_names
from ..options import Json, Url
from ..terminal.screen import Screen
from .dry_run import check_here


def verify(
    spec: Annotated[
        str | None, typer.Argument(metavar="SPEC", help="Spec file, YAML or JSON; with --check a certificate.")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="JOB",
            help="Prove the layout of this job, and attach the certificate to it; with --check attach the one that is given.",
            autocompletion=job_names,
        ),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=LEAST_STEPS, max=1000, help="Number of steps.")] = 4,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The certificate. Default: NAME.certificate.json in this folder."),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Train the model, layout and batch as they are, however large.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only check the signature of a certificate.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Prove a layout: train it and one process on this machine in float64, and compare every number."""
    screen = Screen()
    if check:
        certificate = _checked(Path(_named(spec)))
    else:
        document, job = _document(spec, job, url)
        given = read_training_spec(document)
        path = out or Path(f"{given.name}.certificate.json")
        _check_place(path)
        certificate = _proven(given, steps, whole, screen)
    try:
        if not check:
            _write(path, certificate)
            if not json:
                screen.say(f"Written: {path} and {_page_of(path).name}")
        if job is not None:
            with Client(url) as client:
                attached = client.attach_certificate(job, certificate)
            if not json:
                screen.say(f"Attached to {attached.id}")
    finally:  # last, because output into a pipe whose reader has ended ends the command
        _show(screen, certificate, json)
    if not (check or certificate.equal):
        raise typer.Exit(ExitCode.ERROR)


def _named(spec: str | None) -> str:
    """Raises InvalidParameter if no file is given."""
    if spec is None:
        remedy = "Such as: shardyard verify train.yaml, or shardyard verify --job JOB"
        raise InvalidParameter("No file is given.", field="SPEC", remedy=remedy)
    return spec


def _document(spec: str | None, job: str | None, url: str | None) -> tuple[Any, str | None]:
    """The spec of a file, or of a job with its id: a newer job may get the name meanwhile. Raises InvalidParameter."""
    if job is None:
        return spec_file.load(_named(spec)), None
    if spec is not None:
        remedy = f"Prove the job's own spec with: shardyard verify --job {job}"
        raise InvalidParameter("Both a file and a job are given.", field="--job", remedy=remedy)
    with Client(url) as client:
        found = client.job(job)
    return found.spec, found.id


def _proven(given: JobSpec, steps: int, whole: bool, screen: Screen) -> Certificate:
    """The signed certificate of a spec. Raises InvalidParameter, InvalidLayout, InvalidSpec."""
    if not given.train.undecided:
        check_here(given.train)
    with tempfile.TemporaryDirectory(prefix="shardyard-verify-") as folder:
        from .local_proof import proven

        made = proven(given, steps, whole, Path(folder), screen)
    try:
        return signed(made, Settings())
    except KeyUnusable as error:
        remedy = "Give the file to this user alone (chmod 600), or remove it, so that another key is made."
        raise InvalidParameter(str(error), field="SHARDYARD_DATA_DIR", remedy=remedy) from None


def _checked(path: Path) -> Certificate:
    """The certificate in a file, whose signature is right. Raises InvalidParameter."""
    try:
        certificate = Certificate.model_validate_json(path.read_bytes())
        fingerprint(certificate)
    except OSError as error:
        message, remedy = f"{path} cannot be read: {error.strerror}.", "Name a file that shardyard verify has written."
    except ValidationError:
        message, remedy = f"{path} is no certificate.", "Name a file that shardyard verify has written."
    except SignatureInvalid as error:
        message, remedy = str(error), "Make another with: shardyard verify SPEC"
    else:
        return certificate
    raise InvalidParameter(message, field="--check", remedy=remedy)


def _page_of(path: Path) -> Path:
    return path.with_suffix(".html")


def _check_place(path: Path) -> None:
    """Raises InvalidParameter where the certificate or its page could not be written once the training is over."""
    if not path.name or path.suffix.lower() == ".html":
        remedy = "Name a file such as proof.json; its page is written beside it, as proof.html."
        raise InvalidParameter(f"{path} is no name of a certificate.", field="--out", remedy=remedy)
    for place in (path, _page_of(path)):
        try:
            if place.exists():
                with place.open("ab"):
                    continue
            with tempfile.TemporaryFile(dir=place.parent):
                pass
        except OSError as error:
            raise _unwritable(place, error) from None


def _write(path: Path, certificate: Certificate) -> None:
    """Both files. Raises InvalidParameter."""
    try:
        path.write_text(certificate.model_dump_json(indent=2) + "\n", encoding="utf-8")
        _page_of(path).write_text(page(certificate, fingerprint(certificate)), encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> InvalidParameter:
    message = f"{path} cannot be written: {error.strerror}."
    return InvalidParameter(message, field="--out", remedy="Name a file in a folder of yours.")


def _show(screen: Screen, certificate: Certificate, json: bool) -> None:
    if json:
        screen.json(certificate)
        return
    key = fingerprint(certificate)
    facts: list[tuple[str, str | None]] = [
        ("layout", certificate.layout),
        ("steps", str(certificate.steps)),
        ("key", f"{key} (Ed25519)"),
    ]
    reference = certificate.reference
    if reference is not None:
        far = "not finite" if reference.difference is None else f"{reference.difference:.1e}"
        facts.append(("without that", f"losses differ from one process that only trains by up to {far}"))
    equal = "equal to" if certificate.equal else "DIFFERENT from"
    screen.facts(f"{certificate.name}: {equal} {one_process(certificate)}", facts)
    screen.table(
        ("numbers", "compared", "largest difference", "bound", "at"), [_row(one) for one in certificate.numbers]
    )
    rows = [_flow(one) for one in certificate.traffic]
    if rows:
        screen.table(("axis", "collective", "bytes sent", "by formula", ""), rows)


def _row(one: NumbersCompared) -> list[str]:
    largest = "not finite or missing" if one.difference is None else f"{one.difference:.1e}"
    return [
        one.what,
        f"{one.compared:,}",
        largest,
        f"{one.bound:.0e}",
        "" if one.equal and not one.difference else one.where,
    ]


def _flow(one: CommVolume) -> list[str]:
    counted = "-" if one.bytes is None else f"{one.bytes:,.0f}"
    said = "-" if one.formula_bytes is None else f"{one.formula_bytes:,.0f}"
    return [one.axis, one.collective, counted, said, one.formula or one.reason or ""]
