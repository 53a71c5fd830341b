"""Text becomes the same tokens in every process, and pairs of sentences as BERT wants them, masked without a leak."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from gradsync.errors import InputError
from gradsync.runtime import data
from gradsync.runtime.data import masked, wordpiece
from gradsync.runtime.models.spec import NOT_COUNTED

LENGTH = 64


def load(name="text", folder=None, model="bert_base_quarter", size=LENGTH, batch=2, ranks=2, seed=5):
    return data.load(name, model=model, size=size, batch=batch, ranks=ranks, seed=seed, folder=folder)


def numbered(samples=400, length=LENGTH, stops=(), vocabulary=10**6):
    """Pairs of a text in which every token differs, so that each shows where it came from."""
    span = length - 3
    tokens = 1000 + np.arange(samples * span)
    return masked.MaskedPairs(tokens, np.arange(samples) * span, length, vocabulary, (7,), stops)


def unmasked(inputs, labels):
    """The tokens as they were."""
    tokens = inputs[:, 0].clone()
    hidden = labels != NOT_COUNTED
    hidden[:, 0] = False
    tokens[hidden] = labels[hidden]
    return tokens


@pytest.fixture(scope="module")
def batch():
    pairs = numbered()
    return pairs.batch(torch.arange(len(pairs)), 0)


def test_pairs_are_two_pieces_of_text_that_fill_the_length(batch):
    inputs, labels = batch
    assert inputs.shape == (400, 2, LENGTH)
    assert labels.shape == (400, LENGTH)
    assert inputs.dtype == labels.dtype == torch.int64
    tokens = unmasked(inputs, labels)
    assert (tokens[:, 0] == masked.CLASS).all()
    assert (tokens[:, -1] == masked.SEPARATOR).all()
    for i, (row, sentences, label) in enumerate(zip(tokens, inputs[:, 1], labels, strict=True)):
        first, second = row[sentences == 0][1:-1], row[sentences == 1][:-1]
        assert row[sentences == 0][-1] == masked.SEPARATOR
        assert first[0] == 1000 + i * (LENGTH - 3)
        for part in (first, second):
            assert (part.diff() == 1).all()
        assert (second[0] == first[-1] + 1) == (label[0] == 0)
    assert set(labels[:, 0].tolist()) == {0, 1}
    assert abs(float(labels[:, 0].float().mean()) - 0.5) < 0.1  # 4 deviations of 400 coins


def test_fifteen_percent_are_masked_as_bert_does(batch):
    inputs, labels = batch
    chosen = labels[:, 1:] != NOT_COUNTED
    assert (chosen.sum(1) == round(0.15 * (LENGTH - 3))).all()
    wanted, shown = labels[:, 1:][chosen], inputs[:, 0, 1:][chosen]
    assert not torch.isin(wanted, torch.arange(len(masked.SPECIAL))).any()  # special tokens are never to be found
    shares = [(shown == masked.MASK), (shown == wanted), (shown != masked.MASK) & (shown != wanted)]
    for share, wished in zip(shares, (0.8, 0.1, 0.1), strict=True):
        assert abs(float(share.float().mean()) - wished) < 4 * np.sqrt(0.25 / chosen.sum().item())


def test_a_masked_token_is_nowhere_in_its_input(batch):
    """Every token of the text differs: it may be seen only if it was left as it is."""
    inputs, labels = batch
    for row, label in zip(inputs[:, 0], labels, strict=True):
        for place in (label[1:] != NOT_COUNTED).nonzero().flatten().tolist():
            elsewhere = torch.cat([row[: place + 1], row[place + 2 :]])
            assert label[place + 1] not in elsewhere


def test_masks_are_a_function_of_seed_epoch_and_sample():
    pairs = numbered(20)
    torch.manual_seed(0)
    alone, whole = pairs.batch(torch.tensor([7]), 3), pairs.batch(torch.arange(20), 3)
    for one, all_of_them in zip(alone, whole, strict=True):
        assert torch.equal(one[0], all_of_them[7])
    assert not torch.equal(pairs.batch(torch.tensor([7]), 4)[1], alone[1])
    other = masked.MaskedPairs(pairs.tokens, pairs.starts, LENGTH, 10**6, (8,))
    assert not torch.equal(other.batch(torch.tensor([7]), 3)[1], alone[1])


def test_sentences_are_parted_where_one_ends_nearest_to_the_middle():
    pairs = numbered(3, length=23, stops=(1005, 1007, 1013))  # 20 tokens per sample: 1000 to 1019
    inputs, _ = pairs.batch(torch.tensor([0, 1]), 0)
    assert (inputs[:, 1] == 0).sum(1).tolist() == [2 + 8, 2 + 10]  # after 1007; no sentence ends there: the middle


# --- tokens


VOCABULARY = """
import hashlib, json
from gradsync.runtime.data import wordpiece
from pydoc_data.topics import topics
made = wordpiece.learnt([topics[key] for key in sorted(topics)][:20], 3000)
print(hashlib.sha256(json.dumps(made.get_vocab(), sort_keys=True).encode()).hexdigest())
"""


def test_processes_learn_the_same_vocabulary():
    """Left to itself, the library numbers and picks pieces differently in each."""
    command = [sys.executable, "-c", VOCABULARY]
    vocabularies = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(vocabularies) == 1


def test_a_vocabulary_has_special_pieces_first_and_knows_its_text():
    text = "The quick brown fox jumps. The quick brown dog jumps, too: quickly!"
    tokeniser = wordpiece.learnt([text] * 3, 60)
    assert [tokeniser.id_to_token(number) for number in range(5)] == list(masked.SPECIAL)
    assert tokeniser.get_vocab_size() <= 60
    tokens = tokeniser.encode("The quick FOX").tokens
    assert "[UNK]" not in tokens
    assert "".join(token.removeprefix("##") for token in tokens) == "thequickfox"
    assert tokeniser.encode("\N{SNOWMAN}").tokens == ["[UNK]"]


def test_pythons_documentation_is_read_by_default():
    loaded = load()
    assert len(loaded.training) > 8 * len(loaded.test) > 400
    inputs, labels = loaded.training.batch(loaded.batches.indices(0, 1), 0)
    assert inputs.max() < 30522
    assert labels.max() < 30522
    same = load().training
    again = same.batch(loaded.batches.indices(0, 1), 0)
    assert torch.equal(again[0], inputs)
    assert same.sha256 == loaded.training.sha256 != loaded.test.sha256
    assert (inputs[:, 0] == masked.MASK).any()
    unknown = (unmasked(*loaded.training.batch(torch.arange(200), 0)) == 1).float().mean()
    assert unknown < 0.001


def test_a_feed_leaves_token_numbers_as_they_are():
    loaded = load()
    with data.Feed(loaded, 1, torch.float64) as feed:
        inputs, labels = feed(loaded.batches.turns_an_epoch)  # of the second epoch
    wanted = loaded.training.batch(loaded.batches.indices(loaded.batches.turns_an_epoch, 1), 1)
    assert torch.equal(inputs, wanted[0])
    assert torch.equal(labels, wanted[1])


def test_accuracy_is_the_share_of_masked_tokens_that_are_found():
    from gradsync.runtime import models

    loaded, spec = load(), models.get("bert_base_quarter")

    class Copier(torch.nn.Module):
        """Predicts the tokens that were left as they are."""

        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))
            self.shown = []

        def forward(self, pairs):
            self.shown.append(len(pairs))
            return torch.nn.functional.one_hot(pairs[:, 0], 30522), torch.zeros(len(pairs), 2)

    model = Copier()
    inputs, labels = loaded.test.batch(torch.arange(len(loaded.test)), 0)
    hidden = labels[:, 1:] != NOT_COUNTED
    expected = (inputs[:, 0, 1:] == labels[:, 1:])[hidden].float().mean()
    assert data.accuracy(model, loaded.test, spec=spec) == pytest.approx(float(expected))
    assert 0.05 < expected < 0.15
    assert max(model.shown) * LENGTH * 30522 <= 2**25  # memory


def test_text_files_are_read_in_order(tmp_path):
    words = " ".join(f"word{number} is here." for number in range(3000))
    (tmp_path / "inside").mkdir()
    (tmp_path / "a.txt").write_text(words)
    (tmp_path / "inside" / "b.txt").write_text("Another text. " * 500)
    (tmp_path / "c.pdf").write_bytes(b"\xff\xfe")  # no .txt
    folder = load(folder=tmp_path, size=16)
    file = load(folder=tmp_path / "a.txt", size=16)
    assert len(folder.training) > len(file.training) > 100


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "missing.txt does not exist: correct data_folder or --data-folder"),
        (b"", "is empty: give text to train on"),
        (b"  \n ", "is empty: give text to train on"),
        (b"good \xff bad", "is no text in UTF-8 (byte 5): correct or remove it"),
        (b"a\0b", "is no text (it holds zero bytes)"),
        (b"Too short.", "training and test with sequences of 64 need 1220 at least: give more text, or a smaller size"),
    ],
)
def test_a_file_that_holds_no_text_is_refused(tmp_path, content, message):
    path = tmp_path / "missing.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load(folder=path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_text_and_too_much_text_are_refused(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"holds no \*\.txt: correct data_folder"):
        load(folder=tmp_path)
    (tmp_path / "a.txt").write_text("word " * 1000)
    monkeypatch.setattr("gradsync.runtime.data.text.MOST_BYTES", 4000)
    with pytest.raises(InputError, match="at most 0 MiB, choose fewer files"):
        load(folder=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "digits"}, "data 'digits' has images, model 'bert_base_quarter' takes pairs of sentences"),
        ({"model": "resnet18"}, "data 'text' has pairs of sentences, model 'resnet18' takes images"),
        (
            {"model": "transformer_quarter"},
            "takes sentences with their translations: choose another model, or data syn",
        ),
        ({"size": 513}, "takes no text of 513 tokens"),
    ],
)
def test_data_and_models_that_do_not_fit_each_other_are_refused(arguments, message):
    with pytest.raises(InputError) as caught:
        load(**arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize(("model", "first"), [("bert_base_quarter", masked.CLASS), ("transformer_quarter", None)])
def test_random_tokens_stand_for_any_text(model, first):
    loaded = load("synthetic", model=model)
    inputs, labels = loaded.training.batch(torch.tensor([3, 0, 3]), 0)
    assert inputs.shape == (3, 2, LENGTH)
    assert torch.equal(inputs[0], inputs[2])
    assert not torch.equal(inputs[0], inputs[1])
    if first is None:
        assert torch.equal(inputs[:, 1, 1:], labels[:, :-1])  # one place later
        assert not torch.equal(inputs[:, 0], labels)
    else:
        assert (inputs[:, 0, 0] == first).all()
