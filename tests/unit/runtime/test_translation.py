"""Sentences of generated and of real text become padded batches, and what is wrong with files is said in one line."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gradsync.errors import InputError
from gradsync.runtime import data
from gradsync.runtime.data import generated_language
from gradsync.runtime.data.vocabulary import UNKNOWN, Pieces, Words
from gradsync.runtime.models.language import END, PADDING, START
from gradsync.runtime.models.spec import NOT_COUNTED

ENGLISH = ["The cat sleeps.", "A dog barks at the cat \N{EM DASH} loudly!", "", "Cats sleep."]
GERMAN = ["Die Katze schl\N{LATIN SMALL LETTER A WITH DIAERESIS}ft.", "Ein Hund bellt.", "Leer.", "Katzen schlafen."]


def load(name="translation", folder=None, model="transformer_small", size=None, batch=2, ranks=2, seed=5):
    return data.load(name, model=model, size=size, batch=batch, ranks=ranks, seed=seed, folder=folder)


def write(folder: Path, **files: list[str] | bytes) -> Path:
    """Parallel files, by name with a `.` for `_`; three times the lines that tests share if there is no other."""
    parts = {f"{part}_{language}": lines * 3 for part in ("train", "test") for language, lines in BOTH.items()}
    for name, content in (parts | files).items():
        path = folder / name.replace("_", ".")
        path.write_bytes(content if isinstance(content, bytes) else "".join(f"{line}\n" for line in content).encode())
    return folder


BOTH = {"en": ENGLISH, "de": GERMAN}


# Generated sentences


def test_generated_sentences_are_always_the_same_and_tests_are_held_out():
    training, test = generated_language.sentences()
    generated_language.sentences.cache_clear()
    assert generated_language.sentences() == (training, test)
    assert (len({*training}), len({*test})) == (generated_language.TRAINING, generated_language.TEST)
    assert not {source for source, _ in training} & {source for source, _ in test}
    words = [{word for pair in part for word in pair[1].split()} for part in (training, test)]
    assert words[1] <= words[0]


def test_a_verb_agrees_with_its_subject_and_adjectives_with_their_noun():
    """Without an adverb, the first word of a translation is the subject's noun, and the last one the verb."""
    checked = 0
    writer = generated_language.Writer(np.random.default_rng(3))
    adverbs = {there for _, there in writer.words["adverb"]}
    nouns = {noun for noun, _ in writer.words["noun"]}
    for _ in range(200):
        source, target = writer.sentence()
        if target[0] in adverbs:
            continue
        checked += 1
        ending = target[0][-1]
        assert target[-1].rstrip("r")[-1] == ending
        noun = next(word for word in source if word.removesuffix("s") in nouns)
        assert (ending in "ie") == noun.endswith("s")
        count = source.index(noun) + 1  # words of the subject: all agree
        assert {word[-1] for word in target[:count]} == {ending}
    assert checked > 100


def test_the_default_is_said_to_be_generated_and_a_folder_is_not(tmp_path):
    assert load().training.generated
    assert load().test.generated
    assert "no natural language" in data.translation.NOTE
    assert not load(folder=write(tmp_path)).training.generated


# Batches


def test_batches_are_padded_and_targets_come_one_place_later():
    test = load().test
    inputs, labels = test.batch(torch.tensor([3, 8, 3]), 0)
    lengths = [len(test.references[i].split()) for i in (3, 8)]
    assert inputs.shape[-1] == labels.shape[-1] <= 32
    for i, length in zip((0, 1), lengths, strict=True):
        source, target = inputs[i]
        assert test.vocabulary.text(labels[i, :length].tolist()) == test.references[(3, 8)[i]]
        assert labels[i, length] == END
        assert (labels[i, length + 1 :] == NOT_COUNTED).all()
        assert target[0] == START
        assert torch.equal(target[1 : length + 1], labels[i, :length])
        assert (target[length + 1 :] == PADDING).all()
        assert int((source == END).sum()) == 1
        assert (source[int((source == END).nonzero()) + 1 :] == PADDING).all()
    assert torch.equal(inputs[0], inputs[2])
    assert inputs[:, 0].ne(PADDING).any(0).all() or inputs[:, 1].ne(PADDING).any(0).all()  # no longer than it must be


def test_sentences_that_are_too_long_are_left_out_of_training_and_cut_in_tests():
    short, whole = load(size=10), load()
    assert 0 < len(short.training) < len(whole.training)
    assert len(short.test) == len(whole.test)
    inputs, labels = short.training.batch(torch.arange(len(short.training)), 0)
    assert inputs.shape[-1] <= 10
    assert (labels == END).sum() == len(labels)  # each is whole
    assert short.test.batch(torch.arange(50), 0)[0].shape[-1] == 10
    with pytest.raises(InputError, match="no sentence of the training has less than 3 tokens: a larger size"):
        load(size=3)


def test_ranks_share_an_epoch_and_a_turn_is_a_function_of_its_number():
    loaded = load(batch=50)
    turns = loaded.batches.turns_an_epoch
    seen = torch.cat([loaded.batches.indices(turn, rank) for turn in range(turns) for rank in range(2)])
    assert len(seen.unique()) == len(seen) == turns * 100
    again = load(batch=50)
    for turn in (0, turns + 3):
        for one, other in zip(data.shard(loaded, turn, 1), data.shard(again, turn, 1), strict=True):
            assert torch.equal(one, other)


# Vocabularies


def test_words_are_numbered_by_how_often_they_come():
    words = Words(["b a", "b c"])
    assert words.tokens[4:] == ["b", "a", "c"]
    assert words.encoded(["b x c"]) == [[4, UNKNOWN, 6]]
    assert words.text([START, 4, UNKNOWN, 7, 6, END, 5]) == "b c"  # there is no 7


def test_pieces_give_any_text_back():
    pieces = Pieces([*ENGLISH, *GERMAN] * 2, 400)
    assert 260 < len(pieces.tokens) <= 400
    lines = [*GERMAN, "Never seen: \N{SNOWMAN} 123"]
    assert [pieces.text([*numbers, 400]) for numbers in pieces.encoded(lines)] == lines


PROCESS = """
import hashlib, json
from pydoc_data.topics import topics
from gradsync.runtime.data.vocabulary import Pieces
lines = [line for key in sorted(topics)[:20] for line in topics[key].split("\\n")]
print(hashlib.sha256(json.dumps(Pieces(lines, 2000).tokens).encode()).hexdigest())
"""


def test_processes_learn_the_same_pieces():
    made = {
        subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(made) == 1


def test_a_run_that_goes_on_refuses_another_vocabulary(tmp_path):
    first = load(folder=write(tmp_path)).training
    kept = first.same({}, Path("c"))
    assert first.same(kept, Path("c")) == kept
    data.translation._corpus.cache_clear()
    other = load(folder=write(tmp_path, train_en=["Another dog."] * 12)).training
    with pytest.raises(InputError, match="checkpoint c is of other sentences"):
        other.same(kept, Path("c"))


# Files


def test_files_are_pairs_of_lines(tmp_path):
    folder = write(tmp_path)
    (folder / "train").mkdir()
    for language, lines in BOTH.items():
        (folder / "train" / f"more.{language}").write_text("".join(f"{line}\r\n" for line in lines))
    loaded = load("wmt17", folder)
    assert (len(loaded.training), len(loaded.test)) == (12, 9)  # one line in four is blank
    assert list(loaded.test.references) == [line for line in GERMAN if line != "Leer."] * 3
    _, labels = loaded.training.batch(torch.arange(12), 0)
    texts = [loaded.training.vocabulary.text(row[row >= 0].tolist()) for row in labels]
    assert texts[9:] == texts[:3] == [GERMAN[0], GERMAN[1], GERMAN[3]]  # no carriage return


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train_de": GERMAN}, "train.en has 12 lines, {}/train.de has 4: line by line they must be translations"),
        ({"test_de": b""}, "test.de is empty: give lines of text"),
        ({"train_en": b"good\nbad \xff\n"}, "train.en, line 2: no text in UTF-8 (byte 9 of the file): correct"),
        ({"test_fr": GERMAN}, "files of {} end in .de, .en, .fr: two endings are needed, the source's is .src or .en"),
        ({"train_2_en": GERMAN}, "train.2.en has no translation: {}/train.2.de is missing"),
        ({"train_en": [""] * 12}, "train.en is empty"),
        ({"test_en": ["x"] + [""] * 3, "test_de": ["", "y", "z", ""]}, "have no line that is not blank in one of them"),
    ],
)
def test_files_that_are_no_pairs_are_refused(tmp_path, files, message):
    with pytest.raises(InputError) as caught:
        load(folder=write(tmp_path, **files))
    assert message.format(tmp_path) in str(caught.value)
    assert str(caught.value).startswith("data 'translation': ")
    assert "\n" not in str(caught.value)


def test_folders_without_files_are_refused(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"holds no files train/NAME\.SOURCE and train/NAME\.TARGET"):
        load(folder=tmp_path)
    with pytest.raises(InputError, match="nowhere does not exist: correct data_folder"):
        load(folder=tmp_path / "nowhere")
    with pytest.raises(InputError, match="'wmt17' needs a folder that holds parallel lines of text"):
        load("wmt17")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="file is no folder"):
        load(folder=tmp_path / "file")
    monkeypatch.setattr("gradsync.runtime.data.parallel_files.MOST_BYTES", 50)
    with pytest.raises(InputError, match=r"at most .* GiB, choose fewer files"):
        load(folder=write(tmp_path))


def test_images_are_not_translated():
    with pytest.raises(InputError, match="data 'translation' has sentences with their translations"):
        load(model="lenet5")
