"""SUMMA: the products A·B, A·Bᵀ and Aᵀ·B of matrices in blocks on a grid, without ever holding a whole matrix.

Van de Geijn and Watts (1997) for A·B; Xu et al. (2104.05343, algorithms 1 to 3) for all three, of which each needs only the other two
for its gradients. In q turns, with blocks of the l-th row or column of the grid:

    C = A·B    C_ij += A_il · B_lj     A_il comes along the row, B_lj along the column
    C = A·Bᵀ   C_il  = Σ_j A_ij · B_ljᵀ   B_lj comes along the column, the sum leaves along the row
    C = Aᵀ·B   C_lj  = Σ_i A_ilᵀ · B_ij   A_il comes along the row, the sum leaves along the column

For matrices of a, b and c elements each rank sends (q−1)/q² times the elements that travel: a + b, b + c and a + c. A tree of log₂ q
steps, which the paper counts, takes log₂(q)/q in the place of (q−1)/q². Beside its own blocks a rank holds two of each that travels:
that in use and the next one. Sums of more than one turn are in the dtype of the blocks.

The naive twin gathers whole matrices and multiplies them; tests compare with it.
"""

from collections.abc import Iterator

from torch import Tensor

from .grid import Grid, Line, Pending, one_ahead


def product(a: Tensor, b: Tensor, inner: int, grid: Grid) -> Tensor:
    """This rank's block [m, n] of A·B, from its blocks `a` [m, own inner] and `b` [own inner, n]. `inner` is the whole inner size.

    Collective over the grid.
    """
    columns, rows = grid.row.widths(inner), grid.column.widths(inner)
    of_a = one_ahead(lambda turn: grid.row.broadcast(a, turn, (a.shape[0], columns[turn])), grid.size)
    of_b = one_ahead(lambda turn: grid.column.broadcast(b, turn, (rows[turn], b.shape[1])), grid.size)
    total = a.new_zeros(a.shape[0], b.shape[1])
    for left, right in zip(of_a, of_b, strict=True):
        total.addmm_(left, right)
    return total


def product_with_transposed(a: Tensor, b: Tensor, rows: int, grid: Grid) -> Tensor:
    """This rank's block [m, own rows] of A·Bᵀ, from its blocks `a` [m, k] and `b` [own rows, k]. `rows` is the whole size of B's dim 0.

    Collective over the grid.
    """
    widths = grid.column.widths(rows)
    of_b = one_ahead(lambda turn: grid.column.broadcast(b, turn, (widths[turn], b.shape[1])), grid.size)
    return _own_sum((a.mm(block.t()) for block in of_b), grid.row)


def product_of_transposed(a: Tensor, b: Tensor, columns: int, grid: Grid) -> Tensor:
    """This rank's block [own columns, n] of Aᵀ·B, from its blocks `a` [m, own columns] and `b` [m, n]. `columns`: A's whole width.

    Collective over the grid.
    """
    widths = grid.row.widths(columns)
    of_a = one_ahead(lambda turn: grid.row.broadcast(a, turn, (a.shape[0], widths[turn])), grid.size)
    return _own_sum((block.t().mm(b) for block in of_a), grid.column)


def _own_sum(parts: Iterator[Tensor], line: Line) -> Tensor:
    """The sum over `line` of its own part: the l-th of `parts` is reduced in place l, while the next one is computed."""
    own: Tensor | None = None
    leaving: Pending | None = None
    for turn, part in enumerate(parts):
        if leaving is not None:
            leaving()
        leaving = line.reduce(part, turn)
        own = part if turn == line.index else own
    assert leaving is not None and own is not None
    leaving()
    return own
