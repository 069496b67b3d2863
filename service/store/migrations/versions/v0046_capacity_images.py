"""A capacity has its nodes by image. Those that were stored before count as nodes of the cluster's own image.

Where nodes have an image, it is not known how many of those that were seen had it, and no later pass would correct that. Such a capacity is
forgotten: the first pass stores what is there.
"""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    tx = op.get_bind()
    nodes = sa.table("nodes", sa.column("cluster", sa.String), sa.column("image", sa.String))
    capacities = sa.table("capacities", sa.column("cluster", sa.String), sa.column("configured", sa.Boolean))
    with_image = sa.select(nodes.c.cluster).where(nodes.c.image != "")
    tx.execute(sa.delete(capacities).where(capacities.c.cluster.in_(with_image), ~capacities.c.configured))
    _change(lambda nodes: {"": nodes} if nodes else {})


def downgrade() -> None:
    _change(lambda by_image: sorted((amount for nodes in by_image.values() for amount in nodes), reverse=True))


def _change(changed: Callable[[Any], Any]) -> None:
    tx = op.get_bind()
    key = (sa.column("cluster", sa.String), sa.column("device", sa.String))
    capacities = sa.table("capacities", *key, sa.column("nodes", sa.JSON()))
    for row in tx.execute(sa.select(capacities)).mappings().all():
        mine = (capacities.c.cluster == row["cluster"], capacities.c.device == row["device"])
        tx.execute(sa.update(capacities).where(*mine).values(nodes=changed(row["nodes"])))
