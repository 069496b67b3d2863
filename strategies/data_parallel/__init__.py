"""DDP, ZeRO and FSDP over the data axis."""
