"""Encrypts secrets for the database: Fernet (AES-128-CBC and HMAC-SHA-256), by the operator's key or the data folder's own.

The name is encrypted with the value, so that a writer to the database cannot give one secret's value to another name.
"""

import json
from typing import Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from .errors import SecretsKeyUnusable
from .private_file import NotPrivate, PrivateFile
from .settings import Settings

#: Name of the file in the data folder.
FILE_NAME: Final = "secrets.key"
_REMEDY: Final = (
    "Operators: give all API servers and dispatchers the same SHARDYARD_SECRETS_KEY or SHARDYARD_SECRETS_KEY_PATH. Make a key with: "
    "openssl rand -base64 32 | tr +/ -_"
)


def seal(settings: Settings, name: str, value: str) -> bytes:
    """The secret, encrypted. Makes the data folder's key if there is none. Raises SecretsKeyUnusable."""
    return _cipher(settings, make=True).encrypt(json.dumps([name, value], ensure_ascii=False).encode())


def opened(settings: Settings, name: str, sealed: bytes) -> str:
    """The value of a secret. Raises SecretsKeyUnusable, also for another secret's."""
    try:
        found, value = json.loads(_cipher(settings, make=False).decrypt(sealed))
    except InvalidToken:
        raise SecretsKeyUnusable(f"The secret {name} was encrypted by another key.", remedy=_REMEDY) from None
    if found != name:
        raise SecretsKeyUnusable(f"What is stored as the secret {name} is another one.", remedy="Set it again.")
    return str(value)


def _cipher(settings: Settings, *, make: bool) -> MultiFernet:
    try:
        keys = _keys(settings, make)
        return MultiFernet([Fernet(key) for key in keys.replace(",", "\n").split()])
    except NotPrivate as error:
        raise SecretsKeyUnusable(f"The key of secrets cannot be used. {error}.", remedy=_REMEDY) from None
    except ValueError:
        message = "The key of secrets is not 32 bytes in URL-safe base64."
        raise SecretsKeyUnusable(message, remedy=_REMEDY) from None


def _keys(settings: Settings, make: bool) -> str:
    if settings.secrets_key is not None:
        return settings.secrets_key.get_secret_value()
    own = settings.secrets_key_path is None
    file = PrivateFile(settings.secrets_key_path or settings.data_dir / FILE_NAME, own)
    if make:
        file.make(Fernet.generate_key().decode())
    return file.read()
