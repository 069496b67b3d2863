"""For how many tokens logits exist at a time. Imports no torch.

Logits of V classes in fp32 take 4V bytes per token, three times: the values, their softmax and their gradient. With Llama 3's
128,256 classes that is 1.5 MB per token.
"""

from typing import Final

#: The most bytes of one fp32 copy of a chunk's logits. Smaller chunks would make the head's matrix products inefficient.
CHUNK_BYTES: Final = 256 << 20


def loss_chunk(tokens: int, vocab: int, tensor: int, most: int | None) -> int | None:
    """Tokens per chunk of a micro-batch of `tokens`, all chunks about equal; None: one chunk, whose logits are whole.

    `tensor`: ranks that share the vocabulary. `most`: tokens per chunk, by default as many as take `CHUNK_BYTES`.
    """
    most = most or max(1, CHUNK_BYTES // (4 * -(-vocab // tensor)))
    chunks = -(-tokens // most)
    return -(-tokens // chunks) if chunks > 1 else None
