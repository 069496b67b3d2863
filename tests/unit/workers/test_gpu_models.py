from shardyard.workers.gpu_models import GPU_MODELS, gpu_named, gpu_of_device, gpus_of_ray


def test_every_name_means_one_model() -> None:
    names = [name.casefold() for model in GPU_MODELS for name in {model.name, *model.devices}]
    assert len(names) == len(set(names))


def test_people_and_drivers_names_are_known_in_any_case() -> None:
    model = gpu_named("h100")
    assert model is not None and model is gpu_of_device("NVIDIA H100 80GB HBM3") and model.capability == (9, 0)
    assert gpu_named(" nvidia a10g ") is not gpu_named("A10")
    assert gpu_named("H1") is None


def test_a_part_of_a_gpu_is_not_the_whole() -> None:
    assert gpu_of_device("NVIDIA H100 80GB HBM3 MIG 1g.10gb") is None


def test_rays_name_may_stand_for_several_sizes() -> None:
    assert {model.name for model in gpus_of_ray("A100")} == {"A100 80GB", "A100 40GB"}
    assert {model.name for model in gpus_of_ray("H100")} == {"H100", "H100 PCIe", "H100 NVL"}
    assert [model.name for model in gpus_of_ray("L4")] == ["L4"]
    assert [model.name for model in gpus_of_ray("AMD-Instinct-MI300X-OAM")] == ["MI300X"]
    assert gpus_of_ray("") == gpus_of_ray("RTX-5090") == ()
