"""One table with the names of each vendor's accelerators.

The names come from the vendors' Kubernetes device plugins, node labels and drivers. To support
another vendor, add a row. No code inside a worker reads this table.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """One vendor's accelerators, as clusters, kernels and torch name them."""

    name: str
    #: Kubernetes resources, each with the amount that makes one device.
    resources: Mapping[str, int]
    #: Prefix of resources of which each is one device, or an instance that counts as one.
    prefixes: tuple[str, ...] = ()
    #: Node labels that name the product, in order of trust.
    product_labels: tuple[str, ...] = ()
    #: Files that exist if the kernel has such devices.
    device_files: tuple[str, ...] = ()
    #: Environment variable that names the devices which a process may use.
    visible: str


NVIDIA = Vendor(
    name="NVIDIA",
    resources={"nvidia.com/gpu": 1, "nvidia.com/gpu.shared": 1, "tencent.com/vcuda-core": 100},
    prefixes=("nvidia.com/mig-",),
    product_labels=("nvidia.com/gpu.product",),
    device_files=("/dev/nvidia0", "/dev/nvidiactl"),
    visible="CUDA_VISIBLE_DEVICES",
)
VENDORS: tuple[Vendor, ...] = (
    NVIDIA,
    Vendor(
        name="AMD",
        resources={"amd.com/gpu": 1},
        product_labels=("amd.com/gpu.product-name",),
        device_files=("/dev/kfd",),
        visible="HIP_VISIBLE_DEVICES",
    ),
    Vendor(
        name="Intel",
        resources={"gpu.intel.com/i915": 1, "gpu.intel.com/xe": 1},
        product_labels=("gpu.intel.com/product",),
        device_files=("/dev/dri",),
        visible="ZE_AFFINITY_MASK",
    ),
    Vendor(
        name="Intel Gaudi",
        resources={"habana.ai/gaudi": 1},
        device_files=("/dev/accel",),
        visible="HABANA_VISIBLE_MODULES",
    ),
    Vendor(
        name="Huawei Ascend",
        resources={"huawei.com/ascend-1980": 1, "huawei.com/npu": 1},
        prefixes=("huawei.com/Ascend",),
        device_files=("/dev/davinci0",),
        visible="ASCEND_RT_VISIBLE_DEVICES",
    ),
    Vendor(
        name="Google TPU",
        resources={"google.com/tpu": 1},
        product_labels=("cloud.google.com/gke-tpu-accelerator",),
        device_files=("/dev/accel",),
        visible="TPU_VISIBLE_CHIPS",
    ),
    Vendor(
        name="Cambricon",
        resources={"cambricon.com/mlu": 1},
        device_files=("/dev/cambricon_dev0",),
        visible="MLU_VISIBLE_DEVICES",
    ),
    Vendor(
        name="Moore Threads",
        resources={"mthreads.com/gpu": 1},
        device_files=("/dev/mthreads.0",),
        visible="MUSA_VISIBLE_DEVICES",
    ),
)

#: Node labels by which clouds and people name the product of any vendor.
_ANY_VENDORS = (
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "accelerator",
)
#: Every label that names a node's product, in order of trust.
PRODUCT_LABELS = (*(label for each in VENDORS for label in each.product_labels), *_ANY_VENDORS)
#: Every file that shows a kernel with accelerators.
DEVICE_FILES = tuple(dict.fromkeys(file for each in VENDORS for file in each.device_files))
_PER_DEVICE = {name: count for each in VENDORS for name, count in each.resources.items()}
#: Suffixes of resources that are shares of a device: its memory, its cores.
_PARTS = ("-memory", "-core")
_PREFIXES = tuple(prefix for each in VENDORS for prefix in each.prefixes)


def devices(resource: str, amount: Decimal) -> Decimal:
    """Return the number of devices in ``amount`` of a Kubernetes resource.

    The number is 0 if the resource is not an accelerator. A resource of a vendor without a row
    counts if its name ends in ``/gpu``.

    >>> devices("tencent.com/vcuda-core", Decimal(50)), devices("nvidia.com/mig-1g.5gb", Decimal(2))
    (Decimal('0.5'), Decimal('2'))
    >>> devices("huawei.com/Ascend910A-memory", Decimal(2184))
    Decimal('0')
    >>> devices("example.com/gpu", Decimal(1)), devices("cpu", Decimal(8))
    (Decimal('1'), Decimal('0'))
    """
    if resource in _PER_DEVICE:
        return amount / _PER_DEVICE[resource]
    counted = resource.startswith(_PREFIXES) and not resource.endswith(_PARTS)
    return amount if counted or resource.rpartition("/")[2] == "gpu" else Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The resource and label with which a cluster's nodes offer one kind of accelerator."""

    #: Node label that names the product; None: any product.
    label: str | None
    #: Kubernetes resource, and the amount that makes one device.
    resource: str
    amount: int = 1


def device_of(
    product: str | None, nodes: Iterable[tuple[Mapping[str, str], Mapping[str, Decimal]]]
) -> Device:
    """Return the resource and label with which these nodes offer a product.

    Each node is given by its labels and its allocatable amounts. If no node offers the product
    yet, return NVIDIA's resource and label.

    >>> offered = {"cpu": Decimal(8), "amd.com/gpu": Decimal(4)}
    >>> device_of("MI300X", [({"amd.com/gpu.product-name": "MI300X"}, offered)]).resource
    'amd.com/gpu'
    """
    for labels, offered in nodes if product is not None else ():
        found = [name for name, amount in offered.items() if devices(name, amount) > 0]
        if found and product_in(labels) == product:
            label = next(name for name in PRODUCT_LABELS if name in labels)
            # Whole devices come before their parts, as in the table.
            resource = next((name for name in _PER_DEVICE if name in found), found[0])
            return Device(label=label, resource=resource, amount=_PER_DEVICE.get(resource, 1))
    named = None if product is None else NVIDIA.product_labels[0]
    return Device(label=named, resource=next(iter(NVIDIA.resources)))


def product_in(labels: Mapping[str, str]) -> str | None:
    """Return the product that a node's labels, or a node selector, name; None if they name none.

    >>> product_in({"accelerator": "any", "nvidia.com/gpu.product": "A100"})
    'A100'
    """
    return next((labels[name] for name in PRODUCT_LABELS if name in labels), None)
