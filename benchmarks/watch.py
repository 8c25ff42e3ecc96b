"""What watching a training costs: steps of a transformer of 100 million parameters under DistributedDataParallel, watched or not, by turns.

A turn is as many updates as lie between two checks, with the one check that falls to them; what is compared when watching begins is not
in it. Seconds are those of the processors, so that it matters less what else the machine does; the clock's are printed beside them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from placeproof.measure.processes import run

BOUND = 0.02
WORLD = 2
EVERY = 10
PATIENCE = 3600
PRELOAD = ("torch", "torch.nn.parallel", "torch.optim", "placeproof.measure.watch")


def train(rank: int, world: int, directory: Path, turns: int, tokens: int) -> tuple[int, list[tuple[float, float, float, float]]]:
    """Parameters; and of each pair of turns the processor's seconds and the clock's, unwatched and watched."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from placeproof.measure.watch import watch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0, batch_first=True)
    net: Any = nn.Sequential(nn.Embedding(20_000, 768), nn.TransformerEncoder(layer, 12, enable_nested_tensor=False))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    samples = torch.randint(20_000, (4, tokens // 4), generator=torch.Generator().manual_seed(1 + rank))

    def turn() -> tuple[float, float]:
        processor, clock = time.process_time(), time.perf_counter()
        for _ in range(EVERY):
            optimizer.zero_grad()
            model(samples).square().mean().backward()
            optimizer.step()
        return time.process_time() - processor, time.perf_counter() - clock

    def watched() -> tuple[float, float]:
        watching = watch(model, optimizer, every=EVERY)
        processor, clock = turn()
        at = time.process_time(), time.perf_counter()
        watching.close()
        return processor + time.process_time() - at[0], clock + time.perf_counter() - at[1]

    turn()
    found = []
    for i in range(turns):
        pair = (turn(), watched()) if i % 2 else (watched(), turn())[::-1]
        found.append((pair[0][0], pair[1][0], pair[0][1], pair[1][1]))
    return sum(p.numel() for p in model.parameters()), found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1024, help="of a micro-batch of each process")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    outcomes = run(WORLD, lambda *given: train(*given, asked.turns, asked.tokens), timeout=PATIENCE, preload=PRELOAD)
    if wrong := [one.error for one in outcomes if one.value is None]:
        print(*wrong, sep="\n")
        return 1
    values = [one.value for one in outcomes if one.value is not None]
    pairs = [tuple(map(sum, zip(*pair, strict=True))) for pair in zip(*(found for _, found in values), strict=True)]
    costs = sorted(on / off - 1 for off, on, _, _ in pairs)
    clocks = sorted(on / off - 1 for _, _, off, on in pairs)
    step = statistics.median(off for off, _, _, _ in pairs) / WORLD / EVERY
    print(f"{values[0][0] / 1e6:.0f} million parameters, {asked.tokens} tokens on each of {WORLD} processes: {step:.2f} CPU s a step")
    for what, all_of in (("processor", costs), ("clock", clocks)):
        print(
            f"watched every {EVERY} updates, by the {what}: {statistics.median(all_of):+.2%} (from {all_of[0]:+.2%} to {all_of[-1]:+.2%})"
        )
    return int(asked.check and statistics.median(costs) > BOUND)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
