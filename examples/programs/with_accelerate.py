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
tokens = torch.randint(0, 50, (612, 12))
labels = (tokens % 2).sum(1).gt(6).long()  # is the half of the words odd?
of_rank = BATCH // accelerator.num_processes
data = DataLoader(TensorDataset(tokens[:512], labels[:512]), batch_size=of_rank)
evaluation = DataLoader(TensorDataset(tokens[512:], labels[512:]), batch_size=of_rank)
model = torch.nn.Sequential(
    torch.nn.EmbeddingBag(50, 32), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer, data, evaluation = accelerator.prepare(model, optimizer, data, evaluation)

for epoch in range(EPOCHS):
    model.train()
    total = 0.0
    for words, label in data:
        loss = torch.nn.functional.cross_entropy(model(words), label)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        total += accelerator.reduce(loss.detach(), "mean").item() / len(data)
    model.eval()
    right = count = 0
    for words, label in evaluation:
        with torch.no_grad():
            predicted = model(words).argmax(1)
        predicted, wanted = accelerator.gather_for_metrics((predicted, label))  # without those that fill the last batch
        right, count = right + int((predicted == wanted).sum()), count + len(wanted)
    accelerator.print(f"epoch {epoch + 1}: loss {total:.12f}, {right} of {count} sentences right", flush=True)
accelerator.free_memory()  # else gloo may abort at the exit
model = optimizer = loss = None
accelerator.end_training()
