"""Training text, the tokenizer and chats cut from the text.

The text is `texts/python-topics.txt` of this repository and `pydoc_data.topics` of the Python that
runs (both © Python Software Foundation, PSF licence version 2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data import topics

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = Path(__file__).parent.parent / "texts" / "python-topics.txt"
VOCABULARY = 1024
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
START, END, MASK = 1, 2, 3  # ids of the special tokens that training speaks of
USER, ASSISTANT = "<|im_start|>user\n", "<|im_start|>assistant\n"
CLOSE = "<|im_end|>\n"
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def texts() -> list[str]:
    """The documents, each once: sections of the repository's text, then topics of this Python."""
    documents = [part.strip() for part in TEXT.read_text(encoding="utf-8").split("\f")]
    documents += [re.sub(r"\s+\n", "\n", topic).strip() for topic in topics.topics.values()]
    return list(dict.fromkeys(document for document in documents if document))


def train_tokenizer(documents: Sequence[str]) -> Tokenizer:
    """Byte-level BPE with the special tokens first, so that their ids are 0 to 3."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """tokenizer.json, tokenizer_config.json with the chat template, generation_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[END],
        "unk_token": SPECIAL[0],
        "pad_token": SPECIAL[0],
        "model_max_length": 32768,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(told, indent=1) + "\n")
    (folder / "generation_config.json").write_text(f'{{"eos_token_id": {END}}}\n')


@dataclass(frozen=True)
class Corpus:
    """The documents as tokens, and pieces of them in the form of chats."""

    tokenizer: Tokenizer
    documents: tuple[np.ndarray, ...]  # of int32, one dimension each

    @classmethod
    def of(cls, tokenizer: Tokenizer, documents: Sequence[str]) -> Corpus:
        encoded = tokenizer.encode_batch([document + "\n\n" for document in documents])
        return cls(tokenizer, tuple(np.array(one.ids, dtype=np.int32) for one in encoded))

    def ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text).ids
        return ids

    def piece(self, rng: np.random.Generator, tokens: int) -> list[int]:
        """`tokens` tokens in a row, from a document chosen by length, going on in another one."""
        sizes = np.array([len(document) for document in self.documents])
        chosen = int(rng.choice(len(sizes), p=sizes / sizes.sum()))
        start = int(rng.integers(0, max(1, sizes[chosen] - 16)))
        found = self.documents[chosen][start : start + tokens].tolist()
        while len(found) < tokens:
            more = self.documents[int(rng.integers(len(sizes)))]
            found += more[: tokens - len(found)].tolist()
        return found

    def nonce(self, rng: np.random.Generator) -> list[int]:
        """Prompts begin with a number that makes them new; the model has seen such a beginning."""
        return self.ids(f"{int(rng.integers(10_000)):04d}. ")

    def chat(self, rng: np.random.Generator, length: int) -> list[int]:
        """One training row of `length` tokens: turns that go on in one piece of text."""
        text = self.piece(rng, length)
        row: list[int] = []
        while len(row) < length:
            user, assistant = (int(2 ** rng.uniform(4, 9)) for _ in range(2))
            row += self.ids(USER) + (self.nonce(rng) if not row else [])
            row, text = row + text[:user], text[user:]
            row += self.ids(CLOSE + ASSISTANT)
            row, text = row + text[:assistant], text[assistant:]
            row += self.ids(CLOSE)
            text = text or self.piece(rng, length)
        return row[:length]

    def rows(self, rng: np.random.Generator, count: int, length: int) -> np.ndarray:
        """[count, length] int32 of chats."""
        return np.array([self.chat(rng, length) for _ in range(count)], dtype=np.int32)

    def prompt(self, rng: np.random.Generator, length: int) -> list[int]:
        """A prompt of exactly `length` tokens that waits for an answer."""
        head, tail = self.ids(USER) + self.nonce(rng), self.ids(CLOSE + ASSISTANT)
        return head + self.piece(rng, length - len(head) - len(tail)) + tail

    def next_turn(self, rng: np.random.Generator, tokens: int) -> list[int]:
        """What follows an answer in a conversation: its end, a user message, a new beginning."""
        head, tail = self.ids(CLOSE + USER), self.ids(CLOSE + ASSISTANT)
        return head + self.piece(rng, tokens - len(head) - len(tail)) + tail
