"""Sentences of a made-up language with translations into another one: they need no file, and a model can learn them.

They are no natural language, and whoever shows a number of them has to say so. Words, rules and sentences are the same
everywhere and always; the training's seed only orders them.

A sentence of the source is: subject, verb, and maybe an object, a preposition with its noun, and an adverb. Its
translation has other words, in another order, and some of its words depend on others that may stand far away:

    the sentence     adverb, subject, noun with its preposition behind it, object with a particle, verb
    a noun phrase    noun, adjectives, article: the reverse of the source
    a noun           has a gender, which its ending shows; the source has none
    adjective, article   agree with their noun in gender and number
    a verb           agrees with its subject in gender and number, whatever stands between; the source's past does not
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

TRAINING, TEST = 6000, 200  # sentences; none is in both
SEED = 2010  # of words and sentences
ENDINGS = {("m", 0): "o", ("m", 1): "i", ("f", 0): "a", ("f", 1): "e"}  # gender, whether plural
COUNTS = {"noun": 30, "adjective": 12, "verb": 14, "preposition": 5, "adverb": 6, "article": 3}
SYLLABLES = {"source": ("bdgklmnprst", "aeiou", "lmnrt"), "target": ("cfhjqvwxyz", "aeiou", "cdfkv")}

Pair = tuple[str, str]
Words = list[str]


@cache
def sentences() -> tuple[tuple[Pair, ...], tuple[Pair, ...]]:
    """(training, test): pairs of a sentence and its translation, words parted by spaces."""
    random = np.random.default_rng(SEED)
    writer = Writer(random)
    known: dict[Pair, None] = {}
    while len(known) < TRAINING + TEST:
        source, target = writer.sentence()
        known[" ".join(source), " ".join(target)] = None
    pairs = tuple(known)
    return pairs[TEST:], pairs[:TEST]


class Writer:
    """The words of both languages, and sentences of them."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        stems = {side: _stems(random, *parts, sum(COUNTS.values()) + 1) for side, parts in SYLLABLES.items()}
        self.particle = next(stems["target"])  # behind an object
        self.words = {
            kind: [(next(stems["source"]), next(stems["target"])) for _ in range(count)]
            for kind, count in COUNTS.items()
        }

    def sentence(self) -> tuple[Words, Words]:
        """(words of a sentence, words of its translation)."""
        subject, subject_there, gender, plural = self._noun_phrase()
        verb, verb_there = self._verb(gender, plural)
        source, target = [*subject, verb], [*subject_there]
        objects: Words = []
        if self.random.random() < 0.7:
            phrase, there, _, _ = self._noun_phrase()
            source += phrase
            objects = [*there, self.particle]
        if self.random.random() < 0.4:
            phrase, there, _, _ = self._noun_phrase()
            preposition, preposition_there = self._word("preposition")
            source += [preposition, *phrase]
            target += [*there, preposition_there]
        target += [*objects, verb_there]
        if self.random.random() < 0.3:
            adverb, adverb_there = self._word("adverb")
            source, target = [*source, adverb], [adverb_there, *target]
        return source, target

    def _noun_phrase(self) -> tuple[Words, Words, str, int]:
        """(the phrase, its translation, its gender, whether it is plural)."""
        number = int(self.random.integers(COUNTS["noun"]))
        gender, plural = "mf"[number % 2], int(self.random.integers(2))
        ending = ENDINGS[gender, plural]
        noun, noun_there = self.words["noun"][number]
        article, article_there = self._word("article")
        adjectives = [self._word("adjective") for _ in range(self.random.choice(3, p=(0.5, 0.35, 0.15)))]
        source = [article, *(each for each, _ in adjectives), noun + ("s" if plural else "")]
        agreeing = [there + ending for _, there in reversed(adjectives)]
        return source, [noun_there + ending, *agreeing, article_there + ending], gender, plural

    def _verb(self, gender: str, plural: int) -> Pair:
        stem, there = self._word("verb")
        if self.random.random() < 0.5:
            return f"{stem}ed", f"{there}t{ENDINGS[gender, plural]}"
        return stem if plural else f"{stem}es", f"{there}{ENDINGS[gender, plural]}r"

    def _word(self, kind: str) -> Pair:
        words = self.words[kind]
        return words[int(self.random.integers(len(words)))]


def _stems(random: np.random.Generator, first: str, vowels: str, last: str, count: int) -> Iterator[str]:
    """So many different stems of two syllables, the second of which is closed."""
    made: dict[str, None] = {}
    while len(made) < count:
        letters = [first, vowels, first, vowels, last]
        made["".join(each[int(random.integers(len(each)))] for each in letters)] = None
    return iter(made)
