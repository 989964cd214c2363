"""Trains a tiny causal model with the Trainer of transformers, fully or through PEFT's adapters."""

import os

import torch
from peft import LoraConfig, get_peft_model
from pieces import BATCH, EVERY, STEPS, options, tell, tell_resumed, wait
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint


class Told(TrainerCallback):
    """Records losses at full precision, because the Trainer logs rounded ones."""

    def __init__(self, pause):
        self.pause = pause

    def on_train_begin(self, args, state, control, **kwargs):
        if state.global_step and state.is_world_process_zero:
            tell_resumed(state.global_step)

    def on_step_end(self, args, state, control, **kwargs):
        wait(self.pause)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs and state.is_world_process_zero:
            tell(state.global_step, float(logs["loss"]))


def arguments(kind, args):
    """Return the Trainer's arguments, with one global batch size for every world size."""
    told = kind(
        output_dir=args.checkpoint,
        use_cpu=True,
        max_steps=STEPS,
        save_steps=EVERY,
        save_total_limit=2,
        logging_steps=1,
        disable_tqdm=True,
        report_to=[],
    )
    told.per_device_train_batch_size = BATCH // told.world_size
    return told


def train(trainer, args):
    found = get_last_checkpoint(args.checkpoint) if os.path.isdir(args.checkpoint) else None
    trainer.train(resume_from_checkpoint=found)


def main():
    parser = options()
    parser.add_argument("--peft", action="store_true")
    args = parser.parse_args()
    set_seed(7)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )
    if args.peft:
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"]))
    made = torch.Generator().manual_seed(5)
    texts = torch.randint(64, (EVERY * BATCH, 12), generator=made)
    data = [{"input_ids": text, "labels": text} for text in texts]
    callbacks = [Told(args.pause)]
    train(
        Trainer(model, arguments(TrainingArguments, args), train_dataset=data, callbacks=callbacks),
        args,
    )


if __name__ == "__main__":
    main()
