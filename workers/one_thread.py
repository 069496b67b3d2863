"""Variables of processes that compute on CPUs, so that ranks beside each other do not use the same cores. Needs no torch."""

from typing import Final

#: One thread for each library that torch computes with.
ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
#: The same, and no GPU.
ON_CPUS: Final = {"CUDA_VISIBLE_DEVICES": "", **ONE_THREAD}
