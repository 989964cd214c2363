"""Every program counts and names the same accelerators, whoever made them."""

import pytest

from brain.types.accelerators import VENDORS, Vendor
from brain.types.resources import Resources
from collectors.pods.sights import node, requests
from scaler.kubernetes.kinds.quantities import resources

NAMES = [
    *((name, each) for vendor in VENDORS for name, each in vendor.resources.items()),
    *((f"{prefix}910", 1) for vendor in VENDORS for prefix in vendor.prefixes),
    ("example.com/gpu", 1),
]


@pytest.mark.parametrize(("name", "each"), NAMES)
def test_operator_and_collector_count_the_same_devices(name: str, each: int) -> None:
    asked = {"containers": [{"resources": {"limits": {name: str(4 * each)}}}]}
    counted = resources({name: 4 * each}, "limits"), requests(asked)
    assert counted == (Resources(gpus=4), Resources(gpus=4))


@pytest.mark.parametrize(
    "name",
    ["cpu", "memory", "hugepages-2Mi", "nvidia.com/gpu.memory", "huawei.com/Ascend910A-memory"],
)
def test_what_is_no_device_is_not_counted(name: str) -> None:
    asked = {"containers": [{"resources": {"limits": {name: "4"}}}]}
    assert (resources({name: 4}, "limits").gpus, requests(asked).gpus) == (0, 0)


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
def test_a_node_is_known_by_its_vendors_label(vendor: Vendor) -> None:
    labels = {label: "the product" for label in vendor.product_labels}
    amounts = {next(iter(vendor.resources)): "8"}
    seen = node({"metadata": {"labels": labels}, "status": {"allocatable": amounts}})
    assert seen.accelerator == ("the product" if labels else "gpu")
