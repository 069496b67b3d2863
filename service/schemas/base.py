"""What every value of the service is made of: a frozen pydantic model, and times that the database keeps as unix seconds.

The same types serve the service's own functions, the HTTP API and the Python client. Responses may grow fields: a client ignores a field
that it does not know.
"""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Value(BaseModel):
    # The server sends every field, so the schema of a response requires those with a default too.
    model_config = ConfigDict(extra="ignore", frozen=True, json_schema_serialization_defaults_required=True)


def _of_unix_seconds(value: Any) -> Any:
    return datetime.fromtimestamp(value, UTC) if isinstance(value, int | float) else value


#: A time in UTC. Unix seconds are converted; text in ISO 8601 is read.
Timestamp = Annotated[datetime, BeforeValidator(_of_unix_seconds)]
