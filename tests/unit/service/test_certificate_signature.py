"""A certificate that was changed after it was signed is refused, and so is one without a signature."""

import json
from pathlib import Path

import pytest
from harness.certificates import certificate

from shardyard.service.certificate_signature import FILE_NAME, KeyUnusable, SignatureInvalid, fingerprint, signed
from shardyard.service.schemas.certificate import Certificate, Reference, Signature
from shardyard.service.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")  # type: ignore[call-arg]


def test_a_signature_is_of_this_users_key_and_survives_the_file(settings: Settings) -> None:
    first, second = signed(certificate(), settings), signed(certificate(name="other"), settings)
    assert fingerprint(first) == fingerprint(second)
    assert fingerprint(Certificate.model_validate_json(first.model_dump_json(indent=2))) == fingerprint(first)
    assert (settings.data_dir / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_a_certificate_of_before_references_were_named_is_right(settings: Settings) -> None:
    document = json.loads(signed(certificate(), settings).model_dump_json())
    del document["reference"]
    assert fingerprint(Certificate.model_validate(document))


def test_a_reference_is_signed(settings: Settings) -> None:
    reference = Reference(extra="rounds the same blocks", losses_without=[5.0, 4.0], difference=0.0625)
    mine = signed(certificate(reference=reference), settings)
    assert fingerprint(Certificate.model_validate_json(mine.model_dump_json()))
    for changed in (None, reference.model_copy(update={"difference": 0.0})):
        with pytest.raises(SignatureInvalid):
            fingerprint(mine.model_copy(update={"reference": changed}))


def test_what_was_changed_is_refused(settings: Settings, tmp_path: Path) -> None:
    mine = signed(certificate(), settings)
    other = signed(certificate(), Settings(data_dir=tmp_path / "other"))  # type: ignore[call-arg]
    assert mine.signature is not None and other.signature is not None
    swapped = Signature(key=other.signature.key, value=mine.signature.value)
    for wrong in (
        mine.model_copy(update={"equal": False}),
        mine.model_copy(update={"losses": [5.0, 4.000000001]}),
        mine.model_copy(update={"signature": None}),
        mine.model_copy(update={"signature": swapped}),
        mine.model_copy(update={"signature": Signature(key="x", value="?")}),
    ):
        with pytest.raises(SignatureInvalid):
            fingerprint(wrong)
    assert fingerprint(other) != fingerprint(mine)


def test_a_key_that_is_none_is_refused_with_its_file(settings: Settings) -> None:
    settings.data_dir.mkdir()
    (settings.data_dir / FILE_NAME).write_text("no key\n")
    (settings.data_dir / FILE_NAME).chmod(0o600)
    with pytest.raises(KeyUnusable, match=FILE_NAME):
        signed(certificate(), settings)
