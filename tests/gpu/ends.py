"""Ends of worlds that a card has a part in: out of memory, a kernel that never ends."""

from tests.gpu.stage import Part, Stage, ended_well

_TOO_MUCH = """
import os, torch
open(f"attempt-{len(os.listdir('.'))}", "w").close()
print("attempt", flush=True)
model = torch.nn.Linear(8, 8).to(os.environ["DEVICE"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    model(torch.ones(4, 8, device=os.environ["DEVICE"])).sum().backward()
    optimizer.step()
if os.environ["DEVICE"] == "cuda":
    torch.empty(torch.cuda.mem_get_info()[1] * 2, dtype=torch.uint8, device="cuda")
raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
"""


def device_memory(stage: Stage) -> str:
    """An allocation that no card has is named, and tried once more with the same batch."""
    run = stage.run(_TOO_MUCH, "--max-restarts=3")
    attempts = len(run.told("attempt"))
    assert run.code != 0, "a script without memory ended with 0"
    assert "accelerator ran out of memory" in run.output, run.output[-3000:]
    assert attempts == 2, f"it was tried {attempts} times\n{run.output[-3000:]}"
    return "named; of three restarts that were allowed one was made"


_SPINS = """
import os, time, torch
device = os.environ["DEVICE"]
model = torch.nn.Linear(8, 8).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    model(torch.ones(4, 8, device=device)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
def waits_for_ever():
    if device == "cuda":
        for _ in range(1000):
            torch.cuda._sleep(1 << 34)  # some seconds each
        torch.cuda.synchronize()
    time.sleep(3600)
if not os.path.exists("hung"):
    open("hung", "w").close()
    waits_for_ever()
print("through", flush=True)
"""


def spins(stage: Stage) -> str:
    """A kernel that never ends is found, and the next world has the card."""
    run = ended_well(
        stage.run(_SPINS, "--hang-seconds=2", "--on-hang=restart", "--max-restarts=2", seconds=150)
    )
    assert "no worker has made progress" in run.output, run.output[-3000:]
    assert "waits_for_ever" in run.output, f"the place is not named\n{run.output[-3000:]}"
    assert run.told("through"), run.output[-3000:]
    return "found, named, and the next world went through"


PARTS = (
    Part(name="device-memory", act=device_memory),
    Part(name="spinning-kernel", act=spins, seconds=180),
)
