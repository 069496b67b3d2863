"""Signs certificates with this user's Ed25519 key, and checks the signature of any certificate.

The signature covers the canonical JSON (sorted keys, no spaces, ASCII) of everything but itself, and of `reference` only where there is
one: certificates of before had no such field. Whether its key is trusted, the reader decides by the fingerprint.
"""

import base64
import hashlib
import json
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from .private_file import NotPrivate, PrivateFile
from .schemas.certificate import Certificate, Signature
from .settings import Settings

#: Name of the file in the data folder.
FILE_NAME: Final = "certificate.key"


class SignatureInvalid(ValueError):
    """A certificate has no signature, or is not what was signed."""


class KeyUnusable(ValueError):
    """The file of this user's key cannot be read or made, or others may have read it."""


def signed(certificate: Certificate, settings: Settings) -> Certificate:
    """The certificate with this user's signature. Makes the data folder's key if there is none. Raises KeyUnusable."""
    key = _key(settings)
    signature = Signature(key=_text(key.public_key().public_bytes_raw()), value=_text(key.sign(_content(certificate))))
    return certificate.model_copy(update={"signature": signature})


def fingerprint(certificate: Certificate) -> str:
    """Of the key that signed it: the first 16 hexadecimal digits of its SHA-256. Raises SignatureInvalid."""
    if certificate.signature is None:
        raise SignatureInvalid("The certificate has no signature.")
    try:
        key = base64.b64decode(certificate.signature.key, validate=True)
        value = base64.b64decode(certificate.signature.value, validate=True)
        Ed25519PublicKey.from_public_bytes(key).verify(value, _content(certificate))
    except (InvalidSignature, ValueError):
        raise SignatureInvalid("The certificate is not what was signed: it was changed, or it is damaged.") from None
    return hashlib.sha256(key).hexdigest()[:16]


def _key(settings: Settings) -> Ed25519PrivateKey:
    file = PrivateFile(settings.data_dir / FILE_NAME, own=True)
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.make(_text(Ed25519PrivateKey.generate().private_bytes_raw()))
        return Ed25519PrivateKey.from_private_bytes(base64.b64decode(file.read().strip(), validate=True))
    except (NotPrivate, ValueError, OSError) as error:
        raise KeyUnusable(f"{file.path} cannot be used: {error}") from None


def _content(certificate: Certificate) -> bytes:
    left_out = {"signature"} if certificate.reference else {"signature", "reference"}
    content = certificate.model_dump(mode="json", exclude=left_out)
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
