"""The table of specs' texts. It is apart from `jobs`, so that a list of jobs does not read them."""

from sqlalchemy import Boolean, Column, ForeignKey, String, Table, Text, false

from .metadata import METADATA

submitted_specs = Table(
    "submitted_specs",
    METADATA,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("format", String(4), nullable=False),  # yaml, json
    Column("text", Text, nullable=False),
    Column("layout_changed", Boolean, nullable=False, server_default=false()),  # in the stored spec, since
)
