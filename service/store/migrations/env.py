"""Alembic runs this file for `store/schema.py`, which hands it an open connection: all is one transaction."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=context.config.attributes["metadata"],
    render_as_batch=True,
    compare_type=True,
)
context.run_migrations()
