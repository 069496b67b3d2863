"""Secrets: set, listed and removed by users, named in specs, and opened for the gangs of jobs that name them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from ..workers.messages import secret as message
from .errors import InvalidSpec, TooManySecrets, UnknownSecret
from .schemas.secret import Secret
from .secret_cipher import opened, seal
from .settings import Settings
from .spec import SecretUse
from .store import secrets as rows
from .store.engine import Store

#: Maximum number of secrets.
MOST: Final = 1000
#: Maximum bytes of all secrets of a job, encrypted: about 70 KiB of text. Ray would keep larger arguments of a call in its object store.
MOST_OF_A_JOB: Final = 96 << 10


async def put(store: Store, settings: Settings, name: str, value: str, actor: str) -> Secret:
    """Store a secret, in place of the one of this name. Raises SecretsKeyUnusable, TooManySecrets."""
    sealed = seal(settings, name, value)
    async with store.write() as tx:
        if await rows.count(tx, name) >= MOST:
            raise TooManySecrets(f"There are {MOST:,} secrets.", remedy="Remove those that no job needs any more.")
        return Secret(**await rows.put(tx, name, sealed, actor))


async def remove(store: Store, name: str) -> list[Secret]:
    """Remove a secret, and return the others. Harmless if there is none of this name."""
    async with store.write() as tx:
        await rows.remove(tx, name)
        return [Secret(**row) for row in await rows.without_values(tx)]


async def listed(store: Store) -> list[Secret]:
    async with store.read() as tx:
        return [Secret(**row) for row in await rows.without_values(tx)]


async def sealed(tx: AsyncConnection, uses: Sequence[SecretUse]) -> dict[str, bytes]:
    """Name → encrypted value, of the secrets that a job uses. Raises UnknownSecret, InvalidSpec."""
    found = await rows.sealed(tx, {use.name for use in uses}) if uses else {}
    for number, use in enumerate(uses):
        if use.name not in found:
            remedy = f"Set it with: shardyard secrets --set {use.name}"
            raise UnknownSecret(f"There is no secret {use.name}.", field=f"secrets[{number}]", remedy=remedy)
    if sum(len(found[use.name]) for use in uses) > MOST_OF_A_JOB:
        remedy = "Name fewer, or keep large files on shared storage."
        message = f"The secrets of a job have {MOST_OF_A_JOB:,} bytes at most, encrypted: about 70,000 of text."
        raise InvalidSpec(message, field="secrets", remedy=remedy)
    return found


async def of_job(store: Store, settings: Settings, spec: Mapping[str, Any]) -> list[message.Secret]:
    """The secrets of a job, by its stored spec, for its gang. Raises SecretsKeyUnusable, UnknownSecret."""
    uses = [SecretUse.model_validate(use) for use in spec.get("secrets", ())]
    async with store.read() as tx:
        found = await sealed(tx, uses)
    return [message.Secret(use.target, opened(settings, use.name, found[use.name]), use.file) for use in uses]
