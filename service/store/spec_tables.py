"""The tables of specs' texts and certificates. They are apart from `jobs`, so that a list of jobs does not read them."""

from sqlalchemy import Boolean, Column, Double, ForeignKey, String, Table, Text, false

from .metadata import METADATA

submitted_specs = Table(
    "submitted_specs",
    METADATA,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("format", String(4), nullable=False),  # yaml, json
    Column("text", Text, nullable=False),
    Column("layout_changed", Boolean, nullable=False, server_default=false()),  # in the stored spec, since
)

certificates = Table(
    "certificates",
    METADATA,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("actor", Text, nullable=False),  # who attached it
    Column("made_at", Double, nullable=False),  # by the clock of the machine that made it
    Column("equal", Boolean, nullable=False),
    Column("layout", Text, nullable=False),  # as it was trained
    Column("key", String(16), nullable=False),  # fingerprint of the key that signed it
    Column("document", Text, nullable=False),  # the whole certificate, as JSON
)
