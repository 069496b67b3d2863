"""What Ray's resources of a node say of its GPUs and its memory."""

from shardyard.service.cluster.ray_nodes import free_memory_bytes, gpu_model


def test_the_model_of_the_gpus_is_the_name_of_a_resource() -> None:
    assert gpu_model({"CPU": 8.0, "GPU": 4.0, "accelerator_type:H100": 1.0}) == "H100"
    assert gpu_model({"CPU": 8.0, "GPU": 4.0}) == ""


def test_the_object_store_takes_memory_only_as_it_is_filled() -> None:
    assert free_memory_bytes({"memory": 3.0e9, "object_store_memory": 1.0e9}) == 4 * 10**9
    assert free_memory_bytes({"CPU": 1.0}) == 0
