"""The rank actor, one per device. It has Ray and no torch."""
