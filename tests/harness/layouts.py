"""The layouts that the parity grid compares with one process, by what they are about. A name says what a layout has."""

from typing import Any

#: Four tensor ranks in two rows and two columns.
GRID = {"mode": "2d", "shape": [2, 2]}
#: Eight in two such grids, and in a cube.
DEEP = {"mode": "2.5d", "shape": [2, 2, 2]}
CUBE = {"mode": "3d", "shape": [2, 2, 2]}

LAYOUTS: dict[str, dict[str, Any]] = {
    "data4": {"data": 4},
    "data4-zero1": {"data": 4, "zero": 1},
    "data4-zero2": {"data": 4, "zero": 2},
    "data4-zero3": {"data": 4, "zero": 3},
    "data4-zero3-shard2": {"data": 4, "zero": 3, "shard": 2},
    "data4-zero3-secondary2": {"data": 4, "zero": 3, "zero_plus_plus": {"secondary": 2}, "micro_batch": 2},
    "data4-tensor2-zero3-shard2": {"data": 4, "tensor": 2, "zero": 3, "shard": 2},
    "data3-uneven": {"data": 3, "zero": 1},
    "data3-uneven-zero2": {"data": 3, "zero": 2, "micro_batch": 2},
    "data3-uneven-zero3": {"data": 3, "zero": 3, "micro_batch": 2},
    "accumulate": {"data": 2, "micro_batch": 2},
    "accumulate-zero1": {"data": 2, "zero": 1, "micro_batch": 2},
    "accumulate-zero2": {"data": 2, "zero": 2, "micro_batch": 2},
    "accumulate-zero3": {"data": 2, "zero": 3, "micro_batch": 2},
    "tensor2": {"tensor": 2},
    "tensor2-whole": {"tensor": 2, "sequence": False},
    "grid2x2": {"tensor": GRID},
    "grid2x2-data2-zero1": {"tensor": GRID, "data": 2, "zero": 1, "micro_batch": 4},
    "grids2x2x2": {"tensor": DEEP},
    "cube2x2x2": {"tensor": CUBE},
    "tensor2-data2": {"tensor": 2, "data": 2},
    "tensor2-data2-zero1": {"tensor": 2, "data": 2, "zero": 1},
    "tensor2-data2-zero2": {"tensor": 2, "data": 2, "zero": 2, "micro_batch": 4},
    "tensor2-data2-zero3": {"tensor": 2, "data": 2, "zero": 3},
    "gpipe2": {"pipeline": 2, "schedule": "gpipe"},
    "1f1b2": {"pipeline": 2},
    "1f1b4": {"pipeline": 4},
    "interleaved2": {"pipeline": 2, "schedule": "interleaved"},
    "zbv2": {"pipeline": 2, "schedule": "zbv"},
    "pipeline2-data2": {"pipeline": 2, "data": 2},
    "pipeline2-data2-zero1": {"pipeline": 2, "data": 2, "zero": 1},
    "pipeline2-data2-zero2": {"pipeline": 2, "data": 2, "zero": 2},
    "pipeline2-data2-zero3": {"pipeline": 2, "data": 2, "zero": 3},
    "zbv2-data2-zero1": {"pipeline": 2, "schedule": "zbv", "data": 2, "zero": 1},
    "zbv2-data2-zero3": {"pipeline": 2, "schedule": "zbv", "data": 2, "zero": 3},
    "interleaved2-data2-zero2": {"pipeline": 2, "schedule": "interleaved", "data": 2, "zero": 2},
    "zb-h1-4": {"pipeline": 4, "schedule": "zb-h1"},
    "zb-h2-2-data2-zero1": {"pipeline": 2, "schedule": "zb-h2", "data": 2, "zero": 1},
    "pipeline2-tensor2": {"pipeline": 2, "tensor": 2},
    "zbv2-tensor2": {"pipeline": 2, "schedule": "zbv", "tensor": 2},
    "data2-tensor2-pipeline2": {"data": 2, "tensor": 2, "pipeline": 2},
    "data2-tensor2-pipeline2-zero1": {"data": 2, "tensor": 2, "pipeline": 2, "zero": 1},
    "data2-tensor2-pipeline2-zero2": {"data": 2, "tensor": 2, "pipeline": 2, "zero": 2},
    "data2-tensor2-pipeline2-zero3": {"data": 2, "tensor": 2, "pipeline": 2, "zero": 3},
}

RING = {"context": 2}
ULYSSES = {"context": 2, "ulysses": 2}
BOTH = {"context": 4, "ulysses": 2}

GATHER = {"context": 2, "context_method": "all-gather"}
INSIDE = {**BOTH, "context_inner": "ring"}
SCORES = {"context": 2, "context_method": "ring-self-attention"}
WINDOWS = {"context": 4, "ring_window": 2}

CONTEXT_LAYOUTS: dict[str, dict[str, Any]] = {
    "ring2": RING,
    "ring4": {"context": 4},
    "ulysses2": ULYSSES,
    "ulysses2-ring2": BOTH,
    "ring2-accumulate-zero2": {**RING, "zero": 2, "micro_batch": 4},
    "ring2-data2": {**RING, "data": 2},
    "ring2-data2-zero1": {**RING, "data": 2, "zero": 1},
    "ulysses2-data2-zero2": {**ULYSSES, "data": 2, "zero": 2},
    "ring2-data2-zero3": {**RING, "data": 2, "zero": 3},
    "ring2-data4-zero3-groups": {**RING, "data": 4, "zero": 3, "shard": 4},
    "ring2-tensor2": {**RING, "tensor": 2},
    "ring2-tensor2-whole": {**RING, "tensor": 2, "sequence": False},
    "ring2-1f1b2": {**RING, "pipeline": 2},
    "ring2-interleaved2": {**RING, "pipeline": 2, "schedule": "interleaved"},
    "ulysses2-zbv2": {**ULYSSES, "pipeline": 2, "schedule": "zbv"},
    "ring2-dualpipev2": {**RING, "pipeline": 2, "schedule": "dualpipev"},
    "ulysses2-interleaved-zb2": {**ULYSSES, "pipeline": 2, "schedule": "interleaved-zb"},
    "ring2-zb-h1-2": {**RING, "pipeline": 2, "schedule": "zb-h1"},
    "ulysses2-zb-h2-2-zero2": {**ULYSSES, "pipeline": 2, "schedule": "zb-h2", "zero": 2},
    "ring4-zero1": {"context": 4, "zero": 1},
    "ulysses2-ring2-data2-zero3": {**BOTH, "data": 2, "zero": 3},
    "ulysses2-ring2-gpipe2": {**BOTH, "pipeline": 2, "schedule": "gpipe"},
    "ring2-tensor2-data2-zero1": {**RING, "tensor": 2, "data": 2, "zero": 1},
    "ring2-tensor2-zbv2-zero2": {**RING, "tensor": 2, "pipeline": 2, "schedule": "zbv", "zero": 2},
    "ring2-tensor2-1f1b2-zero3": {**RING, "tensor": 2, "pipeline": 2, "zero": 3},
    "ulysses2-data2-1f1b2-zero1": {**ULYSSES, "data": 2, "pipeline": 2, "zero": 1},
    "ulysses4-copied-keys": {"context": 4, "ulysses": 4},
    "ulysses2-tensor2-copied-keys-zero1": {**ULYSSES, "tensor": 2, "zero": 1},
    "gather2": GATHER,
    "gather2-data2-zero3": {**GATHER, "data": 2, "zero": 3},
    "gather2-tensor2-zbv2": {**GATHER, "tensor": 2, "pipeline": 2, "schedule": "zbv"},
    "gather2-ulysses2-zero2": {**BOTH, **GATHER, "context": 4, "zero": 2},
    "gather4-1f1b2": {**GATHER, "context": 4, "pipeline": 2},
    "ring2-inside-ulysses2": INSIDE,
    "ring2-inside-ulysses2-tensor2-zero1": {**INSIDE, "tensor": 2, "zero": 1},
    "ring2-inside-ulysses2-1f1b2": {**INSIDE, "pipeline": 2},
    "scores2": SCORES,
    "scores2-tensor2-zbv2": {**SCORES, "tensor": 2, "pipeline": 2, "schedule": "zbv"},
    "scores2-ulysses2-zero3": {**BOTH, **SCORES, "context": 4, "zero": 3},
    "windows2": WINDOWS,
    "windows2-tensor2-zero3": {**WINDOWS, "tensor": 2, "zero": 3},
    "windows2-zbv2": {**WINDOWS, "pipeline": 2, "schedule": "zbv"},
    "windows2-ulysses2-zero1": {"context": 8, "ulysses": 2, "ring_window": 2, "zero": 1},
}

EXPERT_LAYOUTS: dict[str, dict[str, Any]] = {
    "data2": {"data": 2},
    "data2-zero3": {"data": 2, "zero": 3},
    "tensor2": {"tensor": 2},
    "zbv2": {"pipeline": 2, "schedule": "zbv"},
    "data2-expert2": {"data": 2, "expert": 2},
    "data2-expert2-zero1": {"data": 2, "expert": 2, "zero": 1},
    "data2-expert2-zero3": {"data": 2, "expert": 2, "zero": 3},
    "data4-expert4": {"data": 4, "expert": 4},
    "data4-expert2": {"data": 4, "expert": 2},
    "data4-expert2-zero1": {"data": 4, "expert": 2, "zero": 1},
    "data4-expert2-zero2": {"data": 4, "expert": 2, "zero": 2},
    "data4-expert2-zero3": {"data": 4, "expert": 2, "zero": 3},
    "data8-expert4-zero3": {"data": 8, "expert": 4, "zero": 3},  # fewer experts on a rank than replicas
    "accumulate-expert2": {"data": 2, "expert": 2, "micro_batch": 2},
    "accumulate-expert2-zero2": {"data": 4, "expert": 2, "zero": 2, "micro_batch": 1},
    "accumulate-expert2-zero3": {"data": 2, "expert": 2, "zero": 3, "micro_batch": 4},
    "tensor2-expert2": {"tensor": 2, "data": 2, "expert": 2},
    "tensor2-expert2-whole": {"tensor": 2, "data": 2, "expert": 2, "sequence": False},
    "tensor2-expert2-zero3": {"tensor": 2, "data": 2, "expert": 2, "zero": 3},
    "pipeline2-expert2": {"pipeline": 2, "data": 2, "expert": 2},
    "interleaved2-expert2-zero2": {"pipeline": 2, "schedule": "interleaved", "data": 2, "expert": 2, "zero": 2},
    "dualpipev2-expert2-zero1": {
        "pipeline": 2,
        "schedule": "dualpipev",
        "data": 2,
        "expert": 2,
        "zero": 1,
        "micro_batch": 1,
    },
    "zb-h1-2-expert2-zero2": {"pipeline": 2, "schedule": "zb-h1", "data": 2, "expert": 2, "zero": 2},
    "zbv2-expert2": {"pipeline": 2, "schedule": "zbv", "data": 2, "expert": 2},
    "zbv2-expert2-zero3": {"pipeline": 2, "schedule": "zbv", "data": 2, "expert": 2, "zero": 3},
    "pipeline2-data4-expert2-zero1": {"pipeline": 2, "data": 4, "expert": 2, "zero": 1},
    "tensor2-data4-expert2-zero2": {"tensor": 2, "data": 4, "expert": 2, "zero": 2},
    "tensor2-pipeline2-expert2": {"tensor": 2, "pipeline": 2, "data": 2, "expert": 2},
    "tensor2-pipeline2-expert2-zero1": {"tensor": 2, "pipeline": 2, "data": 2, "expert": 2, "zero": 1},
    "context2": {"context": 2},
    "context2-expert2": {"context": 2, "expert": 2},
    "context2-data2-expert2-zero3": {"context": 2, "data": 2, "expert": 2, "zero": 3},
    "context2-data2-expert4-zero1": {"context": 2, "data": 2, "expert": 4, "zero": 1},
    "context2-tensor2-pipeline2-expert2": {"context": 2, "tensor": 2, "pipeline": 2, "expert": 2, "schedule": "zbv"},
    "tensor2-pipeline2-expert2-zero3": {"tensor": 2, "pipeline": 2, "data": 2, "expert": 2, "zero": 3},
    "data4-expert2-groups2": {"data": 4, "expert": 2, "zero": 3, "shard": 2},
    "accumulate-expert2-groups4": {"data": 8, "expert": 2, "zero": 3, "shard": 4, "micro_batch": 1},
    "data4-expert4-groups2": {"data": 4, "expert": 4, "zero": 3, "shard": 2},
    "tensor2-data4-expert2-groups2": {"tensor": 2, "data": 4, "expert": 2, "zero": 3, "shard": 2},
    "context2-data2-expert2-groups2": {"context": 2, "data": 2, "expert": 2, "zero": 3, "shard": 2},
    "zbv2-data4-expert2-groups2": {"pipeline": 2, "schedule": "zbv", "data": 4, "expert": 2, "zero": 3, "shard": 2},
}

SMALLER = {"weights": "int8", "secondary": 2, "gradients": "int4"}

#: These equal a loop that rounds the same blocks.
QUANTISED_LAYOUTS: dict[str, dict[str, Any]] = {
    "data4-zero3": {"data": 4, "zero": 3, "zero_plus_plus": SMALLER, "micro_batch": 2},
    "data4-zero3-groups": {
        "data": 4,
        "zero": 3,
        "shard": 2,
        "zero_plus_plus": {"weights": "int8", "gradients": "int8"},
    },
    "data4-zero1": {"data": 4, "zero": 1, "zero_plus_plus": {"gradients": "int8", "node": 2}},
    "data4-zero2": {"data": 4, "zero": 2, "zero_plus_plus": {"gradients": "int4"}, "micro_batch": 2},
    "tensor2-data2-zero3": {
        "tensor": 2,
        "data": 2,
        "zero": 3,
        "zero_plus_plus": {"weights": "int8", "gradients": "int8"},
    },
    "pipeline2-data2-zero3": {
        "pipeline": 2,
        "data": 2,
        "zero": 3,
        "zero_plus_plus": {"weights": "int8", "gradients": "int4"},
    },
}

#: These equal a loop whose gradients are late.
DELAYED_LAYOUTS: dict[str, dict[str, Any]] = {
    "2bw2": {"pipeline": 2, "schedule": "2bw"},
    "2bw2-data2": {"pipeline": 2, "schedule": "2bw", "data": 2},
    "2bw4": {"pipeline": 4, "schedule": "2bw"},
    "pipedream2-data2": {"pipeline": 2, "schedule": "pipedream", "data": 2},
    "pipedream4": {"pipeline": 4, "schedule": "pipedream"},
    "pipedream4-synchronised": {"pipeline": 4, "schedule": "pipedream", "vertical_sync": True},
}
