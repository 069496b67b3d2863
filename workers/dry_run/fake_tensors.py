"""Torch's fake tensors and its fake process group, which it keeps in private modules."""

from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.testing._internal.distributed.fake_pg import FakeStore

__all__ = ["FakeStore", "FakeTensor", "FakeTensorMode", "unset_fake_temporarily"]
