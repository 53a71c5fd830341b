"""The Transformer attends to no padding, translates greedily, and what it translates is scored."""

import functools

import pytest
import torch

from gradsync.runtime import data, models
from gradsync.runtime.data import bleu
from gradsync.runtime.models.language import END, PADDING, START
from gradsync.runtime.models.spec import NOT_COUNTED


@functools.cache
def small():
    """A model that tests share; it has learnt nothing."""
    return models.build("transformer_small", 3).eval()


@functools.cache
def sentences():
    return data.load("translation", model="transformer_small", size=None, batch=2, ranks=2, seed=0)


def test_padding_changes_neither_outputs_nor_the_loss():
    test = sentences().test
    shortest = int(test.sources.lengths.argmin())
    alone, labels = test.batch(torch.tensor([shortest]), 0)
    padded, all_labels = test.batch(torch.arange(len(test)), 0)
    length = int((labels[0] != NOT_COUNTED).sum())
    assert padded.shape[-1] > alone.shape[-1] + 5
    assert padded[shortest, 0, alone.shape[-1]] == PADDING
    with torch.no_grad():
        one, among = small()(alone)[0, :length], small()(padded)[shortest, :length]
        torch.testing.assert_close(one, among, atol=1e-5, rtol=1e-5)
        garbage = padded[[shortest]].clone()
        garbage[0, 0, alone.shape[-1] :] = 77  # what is no padding is attended to
        assert not torch.allclose(small()(garbage)[0, :length], one, atol=1e-3)
        spec = models.get("transformer_small")
        output = small()(padded)
    counted = all_labels != NOT_COUNTED
    expected = torch.nn.functional.cross_entropy(output[counted], all_labels[counted], label_smoothing=0.1)
    torch.testing.assert_close(spec.loss(output, all_labels), expected)
    plain = torch.nn.functional.cross_entropy(output[counted], all_labels[counted])
    torch.testing.assert_close(spec.loss(output, all_labels, smoothing=0.0), plain)
    assert spec.right(output, all_labels) == (int((output.argmax(2) == all_labels)[counted].sum()), int(counted.sum()))


def test_a_greedy_translation_is_the_likeliest_token_each_time():
    inputs, _ = sentences().test.batch(torch.arange(6), 0)
    sources = inputs[:, 0]
    most = 7
    translations = small().translate(sources, most)
    assert translations.shape[1] <= most
    given = torch.full((len(sources), sources.shape[1]), PADDING)
    given[:, 0] = START
    for place in range(translations.shape[1]):
        with torch.no_grad():
            logits = small()(torch.stack([sources, given], 1))[:, place]
        logits[:, [PADDING, START]] = -torch.inf
        ended = (translations[:, :place] == END).any(1)
        assert torch.equal(translations[~ended, place], logits[~ended].argmax(1))
        assert (translations[ended, place] == PADDING).all()
        given[:, place + 1] = translations[:, place]


class Translator(torch.nn.Module):
    """Knows every translation of the test, and says only `share` of the words of each."""

    def __init__(self, test, share):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        inputs, labels = test.batch(torch.arange(len(test)), 0)
        ends = (inputs[:, 0] == END).int().argmax(1)
        self.known = {
            tuple(row[:end].tolist()): label[label != NOT_COUNTED].tolist()
            for row, end, label in zip(inputs[:, 0], ends, labels, strict=True)
        }
        self.share = share

    def translate(self, sources, most):
        assert not self.training
        rows = []
        for source in sources.tolist():
            target = self.known[tuple(source[: source.index(END)])]
            kept = target[: round(self.share * (len(target) - 1))]
            rows.append([*kept, END, *[PADDING] * (most - len(kept))])
        return torch.tensor(rows)


@pytest.mark.parametrize(("share", "least", "most"), [(1.0, 100, 100), (0.7, 50, 80), (0.0, 0, 0)])
def test_translations_are_scored_against_the_text_of_the_test(share, least, most):
    pytest.importorskip("sacrebleu")
    test = sentences().test
    model = Translator(test, share).train()
    parts = [bleu.translations(model, test, part, 3) for part in range(3)]
    texts = {number: text for part in parts for number, text in part.items()}
    assert len(texts) == sum(map(len, parts)) == len(test)
    score, signature = bleu.bleu(texts, test)
    assert least - 1e-9 <= score <= most + 1e-9
    assert "tok:13a" in signature
    assert "version:" in signature
    assert model.training  # as it was
    if share == 1:
        assert bleu.translations(model, test) == dict(enumerate(test.references))
