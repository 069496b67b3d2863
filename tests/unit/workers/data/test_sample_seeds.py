"""A sample's seed depends on the key and its number alone, and no two samples of a run share one."""

import numpy as np

from shardyard.workers.data.sample_seeds import sample_seeds


def test_seeds_are_those_of_the_samples_in_any_order_and_company() -> None:
    samples = np.arange(100_000)
    seeds = sample_seeds("train/7", samples)
    assert seeds.dtype == np.int64 and seeds.min() >= 0
    assert len(np.unique(seeds)) == len(samples)
    some = np.array([70_000, 3, 12])
    assert sample_seeds("train/7", some).tolist() == seeds[some].tolist()
    assert sample_seeds("train/7", np.array([1 << 40])).tolist() != sample_seeds("train/7", np.array([0])).tolist()


def test_another_key_gives_other_seeds() -> None:
    samples = np.arange(1000)
    for key in ("train/8", "validation"):
        assert not np.isin(sample_seeds(key, samples), sample_seeds("train/7", samples)).any()


def test_every_bit_is_drawn() -> None:
    bits = np.unpackbits(sample_seeds("train/0", np.arange(4096)).astype(">u8").view(np.uint8).reshape(-1, 8), axis=1)
    assert (np.abs(bits[:, 1:].mean(0) - 0.5) < 0.05).all() and not bits[:, 0].any()
