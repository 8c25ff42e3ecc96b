"""One step of TRL's SFTTrainer over eight sequences of unequal lengths."""

import os
from random import Random

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

WORLD = 2
RATE = 0.1
LENGTHS = [6, 6, 3, 6, 6, 6, 6, 6]  # all ranks fill sequences up to the same length
LORA, MICRO = False, 1


def samples():
    draw = Random(5)
    return Dataset.from_dict({"input_ids": [draw.choices(range(3, 32), k=LENGTHS[i]) for i in range(8)]})


def train():
    torch.manual_seed(0)
    shape = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(**shape))
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "<unk>": 2}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
    settings = SFTConfig(
        output_dir="out",
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=8 // MICRO // int(os.environ["WORLD_SIZE"]),
        gradient_accumulation_steps=MICRO,
        gradient_checkpointing=False,
        max_steps=1,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0.0,
        average_tokens_across_devices=True,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], lora_dropout=0.0, init_lora_weights=False) if LORA else None
    trainer = SFTTrainer(model=model, args=settings, train_dataset=samples(), processing_class=tokenizer, peft_config=lora)
    trainer.train()
    return trainer.accelerator.unwrap_model(trainer.model)
