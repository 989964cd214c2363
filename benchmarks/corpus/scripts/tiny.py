"""Writes the files that other people's programs read: a tiny model with its tokenizer, and
datasets.

All content is drawn from fixed seeds; nothing is downloaded.
"""

import argparse
import json
import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

WORDS = [f"w{number}" for number in range(60)]
EXAMPLES = 64
TEMPLATE = "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} </s> {% endfor %}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("place", type=Path)
    place = parser.parse_args().place
    words = ["<unk>", "<s>", "</s>", "<pad>", "user", "assistant", *WORDS]
    inner = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>")
    )
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        chat_template=TEMPLATE,
    )
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=3,
        bos_token_id=1,
        eos_token_id=2,
        num_labels=1,
    )
    for name, kind in (("model", LlamaForCausalLM), ("judge", LlamaForSequenceClassification)):
        torch.manual_seed(7)
        kind(config).save_pretrained(place / name)
        tokenizer.save_pretrained(place / name)
    drawn = random.Random(5)

    def said(role):
        return [{"role": role, "content": " ".join(drawn.choices(WORDS, k=6))}]

    def kto(number):
        return {"prompt": said("user"), "completion": said("assistant"), "label": number % 2 == 0}

    write(place / "text", lambda _: {"text": " ".join(drawn.choices(WORDS, k=12))})
    write(
        place / "preferences",
        lambda _: {
            "prompt": said("user"),
            "chosen": said("assistant"),
            "rejected": said("assistant"),
        },
    )
    write(place / "verdicts", kto)


def write(directory, example):
    directory.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(example(number)) + "\n" for number in range(EXAMPLES))
    (directory / "train.jsonl").write_text(lines)


if __name__ == "__main__":
    main()
