"""Trains static embeddings with the trainer of sentence-transformers."""

from datasets import Dataset
from hf_trainer import Told, arguments, train
from pieces import BATCH, EVERY, options
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.losses import CosineSimilarityLoss
from sentence_transformers.models import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import set_seed


def main():
    args = options().parse_args()
    set_seed(7)
    number = EVERY * BATCH
    words = {f"w{each}": each for each in range(number)} | {"<unk>": number}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model = SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_dim=32)], device="cpu"
    )
    data = Dataset.from_dict(
        {
            "first": [f"w{each} w{each // 2}" for each in range(number)],
            "second": [f"w{each // 3} w{each // 5}" for each in range(number)],
            "score": [each % 4 / 3 for each in range(number)],
        }
    )
    trainer = SentenceTransformerTrainer(
        model,
        arguments(SentenceTransformerTrainingArguments, args),
        train_dataset=data,
        loss=CosineSimilarityLoss(model),
        callbacks=[Told(args.pause)],
    )
    train(trainer, args)


if __name__ == "__main__":
    main()
