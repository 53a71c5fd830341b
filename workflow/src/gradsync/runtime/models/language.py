"""Models of text, from configurations of the `transformers` library: nothing is downloaded, and nothing pre-trained.

Token numbers come as one tensor (batch, rows, length), so that a batch is two tensors for every model. BERT's sequences
fill their length; sentences of translations are padded, and nothing attends to the padding of a source.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

import torch
from torch import nn

from gradsync.runtime.models.decoding import translated
from gradsync.runtime.models.spec import NOT_COUNTED, PAIRS, TRANSLATIONS, Model
from gradsync.runtime.torchvision_operators import torchvision

QUARTER = 4
LONGEST = 512  # tokens
HEAD = 64  # values of an attention head
BERT_VOCABULARY = 30522
TRANSLATION_VOCABULARY = 37000  # of English and German, "Attention Is All You Need", Section 5.1
SMOOTHING = 0.1  # Section 5.4 there
SMALL_LAYERS, SMALL_VOCABULARY, SMALL_HEAD, SMALL_LENGTH = 2, 1000, 32, 32  # for sentences that processors learn
PADDING, START, END = 0, 2, 3  # token numbers

Pretraining = tuple[torch.Tensor, torch.Tensor]
"""Logits of all tokens (batch, length, vocabulary), and of whether the second sentence follows (batch, 2)."""


def _transformers() -> ModuleType:
    torchvision()  # transformers imports it
    return importlib.import_module("transformers")


class Bert(nn.Module):
    """BERT with both heads of its pre-training, base size or with `by` times fewer hidden units and attention heads.

    Input (batch, 2, length): tokens, and which of the two sentences each belongs to. 12 layers, 768 hidden units, 12
    heads, 30522 tokens; 110,106,428 parameters. The output layer shares its weight with the embedding of tokens.
    Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", NAACL 2019.
    """

    def __init__(self, by: int = 1) -> None:
        super().__init__()
        library, hidden = _transformers(), 768 // by
        self.pretraining = library.BertForPreTraining(
            library.BertConfig(
                vocab_size=BERT_VOCABULARY,
                hidden_size=hidden,
                intermediate_size=4 * hidden,
                num_attention_heads=hidden // HEAD,
                max_position_embeddings=LONGEST,
                pad_token_id=PADDING,
            )
        )

    def forward(self, pairs: torch.Tensor) -> Pretraining:
        """Logits of both heads."""
        tokens, sentences = pairs.unbind(1)
        output = self.pretraining(input_ids=tokens, token_type_ids=sentences)
        return output.prediction_logits, output.seq_relationship_logits


def pretraining_loss(output: Pretraining, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the masked tokens, plus that of the next sentence.

    `labels` (batch, length): NOT_COUNTED if no token was masked. The first column, at `[CLS]`, says whether the second
    sentence follows the first one (0) or not (1): BERT gives its answer at that token.
    """
    tokens, follows = output
    loss = nn.functional.cross_entropy
    return loss(tokens.flatten(0, 1), _masked(labels).flatten()) + loss(follows, labels[:, 0])


def masked_right(output: Pretraining, labels: torch.Tensor) -> tuple[int, int]:
    """(masked tokens that were predicted, masked tokens): the next sentence doesn't count."""
    wanted = _masked(labels)
    return int((output[0].argmax(2) == wanted).sum()), int((wanted != NOT_COUNTED).sum())


def _masked(labels: torch.Tensor) -> torch.Tensor:
    masked = labels.clone()
    masked[:, 0] = NOT_COUNTED
    return masked


class Transformer(nn.Module):
    """The Transformer, an encoder and a decoder of 6 layers, base size or `by` times fewer units, heads.

    Input (batch, 2, length): tokens of the source, and of the target one place later; output (batch, length, 37000).
    512 hidden units, 2048 in between, 8 heads; one embedding for source, target and output; 63,610,880 parameters.
    `layers` of each, `vocabulary` and `head`, the values of an attention head, are other numbers of them.
    Source: Vaswani et al., "Attention Is All You Need", NeurIPS 2017, Table 3, base. Differs: positions are learnt (row
    E there), from the sinusoids of Section 3.5 on, and embeddings are normalised, as BART has it, whose layers these
    are. BART's own first embeddings are so small that positions hardly count beside tokens: those of tokens begin with
    a deviation of 1 once they are scaled.
    """

    def __init__(
        self, by: int = 1, layers: int = 6, vocabulary: int = TRANSLATION_VOCABULARY, head: int = HEAD
    ) -> None:
        super().__init__()
        library, hidden = _transformers(), 512 // by
        sizes = {"layers": layers, "attention_heads": hidden // head, "ffn_dim": 4 * hidden}
        self.body = library.BartModel(
            library.BartConfig(
                vocab_size=vocabulary,
                d_model=hidden,
                max_position_embeddings=LONGEST,
                activation_function="relu",
                dropout=0.1,
                scale_embedding=True,
                pad_token_id=PADDING,
                bos_token_id=START,
                eos_token_id=END,
                decoder_start_token_id=START,
                **{f"{part}_{key}": size for part in ("encoder", "decoder") for key, size in sizes.items()},
            )
        )
        with torch.no_grad():
            self.body.shared.weight.normal_(std=hidden**-0.5)[PADDING] = 0.0
            for part in (self.body.encoder, self.body.decoder):
                part.embed_positions.weight.copy_(_sinusoids(*part.embed_positions.weight.shape))

    def forward(self, sentences: torch.Tensor) -> torch.Tensor:
        """Logits of the next token of the target."""
        source, target = sentences.unbind(1)
        length = target.shape[1]
        before = torch.ones(length, length, dtype=torch.bool, device=target.device).tril()
        output = self.body(
            input_ids=source,
            attention_mask=self.attended(source),
            decoder_input_ids=target,
            decoder_attention_mask=before[None, None],
            use_cache=False,
        )
        return nn.functional.linear(output.last_hidden_state, self.body.shared.weight)

    def attended(self, source: torch.Tensor) -> torch.Tensor:
        """Which tokens of sources (batch, length) are no padding: (batch, 1, 1, length), of all heads and places.

        The first one is none, so that there is one. In this shape the library takes it as it is; of another one it
        would wait for the values, to leave it out if all are true.
        """
        attended = source != PADDING
        attended[:, 0] = True
        return attended[:, None, None]

    @torch.no_grad()
    def translate(self, source: torch.Tensor, most: int) -> torch.Tensor:
        """Greedy translations of sources (batch, length): (batch, at most `most`) tokens, padded behind END."""
        return translated(self.body, source, self.attended(source), most, (PADDING, START, END))


def _sinusoids(places: int, hidden: int) -> torch.Tensor:
    """Positional encodings of Section 3.5 of "Attention Is All You Need": (places, hidden)."""
    angles = torch.arange(places)[:, None] / 10000 ** (torch.arange(0, hidden, 2) / hidden)
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)


def smoothed_cross_entropy(output: torch.Tensor, labels: torch.Tensor, smoothing: float = SMOOTHING) -> torch.Tensor:
    """Of logits (batch, length, vocabulary) and tokens (batch, length), with `smoothing` spread over all tokens.

    The mean over the tokens that count (not NOT_COUNTED) of this batch.
    """
    return nn.functional.cross_entropy(output.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)


def tokens_right(output: torch.Tensor, labels: torch.Tensor) -> tuple[int, int]:
    """(tokens of the target that were predicted from those before them, tokens that count)."""
    return int((output.argmax(2) == labels).sum()), int((labels != NOT_COUNTED).sum())


def _bert(build: Callable[[], nn.Module], reduced: bool) -> Model:
    return Model(
        build,
        (2, 128),  # 90 % of BERT's own pre-training: Section A.2
        BERT_VOCABULARY,
        smallest=5,  # [CLS], a token, [SEP], a token, [SEP]
        smallest_alone=5,
        largest=LONGEST,
        reduced=reduced,
        loss=pretraining_loss,
        takes=PAIRS,
        right=masked_right,
    )


def _transformer(
    build: Callable[[], nn.Module], reduced: bool, length: int = 128, vocabulary: int = TRANSLATION_VOCABULARY
) -> Model:
    return Model(
        build,
        (2, length),
        vocabulary,
        smallest=2,
        smallest_alone=2,
        largest=LONGEST,
        reduced=reduced,
        loss=smoothed_cross_entropy,
        takes=TRANSLATIONS,
        right=tokens_right,
    )


MODELS: dict[str, Model] = {
    "bert_base": _bert(Bert, reduced=False),
    "bert_base_quarter": _bert(lambda: Bert(QUARTER), reduced=True),
    "transformer": _transformer(Transformer, reduced=False),
    "transformer_quarter": _transformer(lambda: Transformer(QUARTER), reduced=True),
    "transformer_small": _transformer(
        lambda: Transformer(QUARTER, SMALL_LAYERS, SMALL_VOCABULARY, SMALL_HEAD),
        reduced=True,
        length=SMALL_LENGTH,
        vocabulary=SMALL_VOCABULARY,
    ),
}
