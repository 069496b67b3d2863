"""The structure that both families share: embed → blocks → norm → head, any part of which may be on another stage.

A parameter's name never depends on the layout. Blocks are keyed by their global index. A pipeline stage drops what it does not own
by setting `embed`, `positions`, `norm` or `head` to None and deleting blocks; the rest keeps its names.
"""

from collections.abc import Callable

from torch import Tensor, nn

from ...strategies.context_parallel.apply import Positions
from ...strategies.context_parallel.ulysses import Attend
from ...strategies.embedding_lookup import Embedding
from .attention import Attention, first_positions, in_documents
from .presets import Architecture


class Block(nn.Module):
    """Pre-norm residual block; hidden [batch, seq, dim] → hidden [batch, seq, dim].

    `routes`: the feed-forward chooses experts for tokens, and takes the documents' starts too.
    """

    def __init__(
        self, attention: Attention, mlp: nn.Module, norm: Callable[[], nn.Module], *, routes: bool = False
    ) -> None:
        super().__init__()
        self.routes = routes
        self.attention_norm = norm()
        self.attention = attention
        self.mlp_norm = norm()
        self.mlp = mlp

    def forward(self, x: Tensor, starts: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), *given(starts))
        out: Tensor = x + self.mlp(self.mlp_norm(x), *(given(starts) if self.routes else ()))
        return out


class PositionTable(Embedding):
    """Learned positions [rows, dim]. `of_hidden`: places [batch, seq] of this rank's tokens → those of the hidden states that it has next.

    They are the same, except on ranks that exchange sequences in the lookup of tokens.
    """

    def __init__(self, rows: int, dim: int) -> None:
        super().__init__(rows, dim)
        self.of_hidden: Callable[[Tensor], Tensor] = same


class Decoder(nn.Module):
    """Token ids [batch, seq] (int64) → logits [batch, seq, vocab].

    Without `embed` the input is the hidden state [batch, seq, dim] of the stage before; without `head` the output is
    the hidden state for the next one. Under sequence parallelism that hidden state is this rank's share of dim 1.
    """

    #: Its forward calls each of `blocks`, which so may wait for their own parameters (`strategies/data_parallel/gathers.py`).
    calls_blocks = True

    embed: nn.Embedding | None
    positions: PositionTable | None
    norm: nn.Module | None
    head: nn.Linear | None

    def __init__(
        self, arch: Architecture, block: Callable[[], Block], norm: Callable[[], nn.Module], *, positions: bool
    ) -> None:
        super().__init__()
        self.arch = arch
        self.embed = Embedding(arch.vocab, arch.dim)
        self.positions = PositionTable(arch.max_seq_len, arch.dim) if positions else None
        self.blocks = nn.ModuleDict({str(layer): block() for layer in range(arch.layers)})
        self.norm = norm()
        self.head = nn.Linear(arch.dim, arch.vocab, bias=False)
        self.token_positions: Positions = first_positions
        self._leaves_head = False
        self.tie()

    def spread_context(self, spread: Callable[[Attend], Attend], positions: Positions) -> None:
        """Replace every `attend` with `spread(attend)`, on tokens at `positions` of their sequence (`strategies.context_parallel`)."""
        self.token_positions = positions
        for module in self.modules():
            if isinstance(module, Attention):
                module.attend, module.positions = spread(module.attend), positions

    def tie(self) -> None:
        """Make the head's weight the embedding's, if the architecture ties them and this stage holds both.

        Call it again after anything that replaces parameters one module at a time: `to_empty`, `parallelize_module`.
        """
        if self.arch.tied and self.embed is not None and self.head is not None:
            self.head.weight = self.embed.weight

    def leave_head(self) -> nn.Linear | None:
        """From now on return the normed hidden state, to which the loss applies the head (`strategies/chunked_loss.py`)."""
        self._leaves_head = True
        return self.head

    def forward(
        self, x: Tensor, then: Callable[[Tensor], Tensor] | None = None, starts: Tensor | None = None
    ) -> Tensor:
        """`then`, if given, is applied to the output while all parameters are gathered.

        `starts` [batch, whole sequence + 1] (int64), if documents are packed, as in `strategies.documents.Packed`. Attention and the
        choice of experts stay within documents, and their positions begin at 0.
        """
        if self.embed is not None:
            x = self._embed(self.embed, x, starts)
        for block in self.blocks.values():
            x = block(x, *given(starts))
        if self.norm is not None:
            x = self.norm(x)
        if self.head is not None and not self._leaves_head:
            x = self.head(x)
        return x if then is None else then(x)

    def _embed(self, embed: nn.Embedding, tokens: Tensor, starts: Tensor | None) -> Tensor:
        hidden: Tensor = embed(tokens)
        if self.positions is None:
            return hidden
        places = self.token_positions(tokens.shape[1], tokens.device)
        # A batch of one index row, so that sequence parallelism can shard both outputs on the same dim 1.
        rows = places.unsqueeze(0) if starts is None else self.positions.of_hidden(in_documents(places, starts))
        learned: Tensor = self.positions(rows)
        return hidden + learned


def same(places: Tensor) -> Tensor:
    """The places of tokens whose hidden states are on their own rank."""
    return places


def given(starts: Tensor | None) -> tuple[Tensor, ...]:
    """The arguments of a block beside the hidden state. Without packed documents there are none."""
    return () if starts is None else (starts,)
