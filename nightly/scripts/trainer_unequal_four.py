"""Right: losses are divided by the number of tokens of the whole step.

Modelled on: transformers' Trainer as it is by default.
The loss: mean over valid tokens of the step.
"""

import tempfile

from toys.trainer import alone, build, unequal
from transformers import Trainer, TrainingArguments

WORLD = 2
reference = alone(unequal, clip=1.0)


def train():
    model = build()
    args = TrainingArguments(
        output_dir=tempfile.gettempdir(),
        use_cpu=True,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        max_steps=1,
        learning_rate=0.1,
        lr_scheduler_type="constant",
        optim="sgd",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    Trainer(model=model, args=args, train_dataset=unequal).train()
    return model
