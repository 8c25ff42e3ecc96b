"""Wrong: one micro-batch; the model ignores the number of tokens that Trainer relies on, and losses are multiplied by the ranks.

Modelled on: transformers' Trainer as it is by default.
The loss: mean over valid tokens of the step.
"""

import tempfile

from toys.trainer import IgnoringCount, alone, build, equal
from transformers import Trainer, TrainingArguments

WORLD = 2
reference = alone(equal, clip=1.0)


def train():
    model = build(IgnoringCount)
    args = TrainingArguments(
        output_dir=tempfile.gettempdir(),
        use_cpu=True,
        per_device_train_batch_size=8,
        max_steps=1,
        learning_rate=0.1,
        lr_scheduler_type="constant",
        optim="sgd",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    Trainer(model=model, args=args, train_dataset=equal).train()
    return model
