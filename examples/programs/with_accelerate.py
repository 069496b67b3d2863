"""Classification of made-up sentences with Hugging Face Accelerate.

shardyard run examples/accelerate.yaml                                   # as a job
torchrun --nproc-per-node 2 examples/programs/with_accelerate.py         # the same without Shardyard
"""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 3, 32

accelerator = Accelerator(cpu=not torch.cuda.is_available())
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
tokens = torch.randint(0, 50, (512, 12))
labels = (tokens % 2).sum(1).gt(6).long()  # is the half of the words odd?
data = DataLoader(TensorDataset(tokens, labels), batch_size=BATCH // accelerator.num_processes)
model = torch.nn.Sequential(
    torch.nn.EmbeddingBag(50, 32), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2)
)
model, optimizer, data = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), data)

for epoch in range(EPOCHS):
    total, right, count = 0.0, 0, 0
    for words, label in data:
        logits = model(words)
        loss = torch.nn.functional.cross_entropy(logits, label)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        predicted, wanted = accelerator.gather_for_metrics((logits.argmax(1), label))
        right, count = right + int((predicted == wanted).sum()), count + len(wanted)
        total += accelerator.reduce(loss.detach(), "mean").item() / len(data)
    accelerator.print(f"epoch {epoch + 1}: loss {total:.12f}, accuracy {right / count:.3f}", flush=True)
accelerator.end_training()
