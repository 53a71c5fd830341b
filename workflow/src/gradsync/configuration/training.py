"""What is trained in a launch, and how: options of `gradsync train` and of its ranks, keys of `training` in YAML.

Each is stated here alone. `configured` is the default of a configuration if it is another one than the command's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gradsync import learning_rates, names, optimizers
from gradsync.configuration import recipes
from gradsync.configuration.options import option
from gradsync.configuration.recipes import Stage
from gradsync.errors import InputError
from gradsync.kernels import KERNELS, RANGES, SCALED, UNSCALED
from gradsync.learning_rates import LearningRate
from gradsync.limits import MOST_ACCUMULATED, MOST_COUNT, MOST_LENGTH, MOST_MEGABYTES, MOST_SEED

LEAST_EPS = RANGES["eps"][0]
Device = Literal["cpu", "cuda"]
Precision = Literal["float32", "bfloat16", "float16"]
DataCache = Literal["exact", "reduced", "files"]
Statistics = Literal["broadcast", "local"]


@dataclass(frozen=True, kw_only=True)
class Compute:
    """What a rank computes in one forward and backward."""

    model: str = option(
        "lenet5",
        "of images: lenet5, resnet18, resnet50, resnet152, alexnet, vgg19, googlenet, densenet201 or inceptionv4, of "
        "text: bert_base or transformer; smaller ones: resnet152_quarter, vgg19_eighth, densenet201_quarter, "
        "inceptionv4_quarter, bert_base_quarter, transformer_quarter, transformer_small; measure and train take one of "
        "your own, too: net.py:FUNCTION or package.module:FUNCTION",
    )
    size: int | None = option(
        None,
        "side of images in pixels, tokens of text",
        metavar="PX",
        least=1,
        most=MOST_LENGTH,
        unset="the model's own",
    )
    batch: int = option(32, "samples per rank and micro-batch", metavar="N", least=1, most=MOST_COUNT)


@dataclass(frozen=True, kw_only=True)
class OnDevice:
    """Where ranks compute."""

    device: Device = option("cpu", "where ranks compute: cuda takes one GPU per rank, and NCCL")


@dataclass(frozen=True, kw_only=True)
class Steps:
    """What a step does with the gradients; all contenders of a launch do the same."""

    optimizer: str = option("sgd", "what applies gradients: sgd, adam, adamw, lars or lamb", metavar="NAME")
    lr: float = option(0.02, "learning rate (a plan has its own; peers take it)")
    momentum: float = option(0.9, "momentum of sgd and lars (a plan has its own; peers take it)")
    weight_decay: float = option(
        0.0, "decay of the parameters, as torch.optim has it for the optimizer; lars and lamb decay all of them"
    )
    beta1: float = option(0.9, "of adam, adamw and lamb, what is kept of the mean of gradients")
    beta2: float = option(0.999, "of adam, adamw and lamb, what is kept of the mean of their squares")
    eps: float = option(1e-8, "of all but sgd, what keeps a small gradient from dividing")
    trust: float = option(0.001, "of lars, what share of its norm a tensor moves by for a learning rate of 1")
    accumulate: int = option(
        1,
        "micro-batches per iteration: only the gradients of the last one's backward are sent",
        metavar="K",
        least=1,
        most=MOST_ACCUMULATED,
    )
    clip_norm: float | None = option(
        None, "norm that the mean gradient is clipped to", metavar="X", unset="not clipped"
    )
    precision: Precision = option("float32", "of forward and backward; float16 with a loss scale that skips steps")
    statistics: Statistics = option(
        "broadcast", "batch-norm statistics: rank 0's for all, as DDP by default, or each rank its own"
    )

    @property
    def scaled(self) -> bool:
        """Whether the loss has a scale, against gradients that float16 does not hold."""
        return self.precision == "float16"

    def refuse_steps(self) -> None:
        """Raises InputError for an optimizer, a rate, a number of micro-batches or a norm that makes no sense."""
        names.refuse_unknown("optimizer", self.optimizer, optimizers.names(), "--optimizer")
        self.refuse_precision("--precision")
        self.refuse_clipping("--clip-norm")
        if not 0 <= self.lr < float("inf"):
            raise InputError(f"--lr {self.lr}: must be finite and not negative")
        if not 0 <= self.momentum < 1:
            raise InputError(f"--momentum {self.momentum}: must be at least 0 and less than 1, or nothing ever settles")
        for key in ("beta1", "beta2"):
            if not 0 <= getattr(self, key) < 1:
                raise InputError(f"--{key} {getattr(self, key)}: must be at least 0 and less than 1")
        for key in ("weight_decay", "trust"):
            if not 0 <= getattr(self, key) < float("inf"):
                raise InputError(f"--{key.replace('_', '-')} {getattr(self, key)}: must be finite and not negative")
        if not LEAST_EPS <= self.eps < float("inf"):
            raise InputError(f"--eps {self.eps}: must be finite and at least {LEAST_EPS:g}")
        if self.accumulate < 1:
            raise InputError(f"--accumulate {self.accumulate}: a step has at least 1 micro-batch")
        if self.clip_norm is not None and not 0 < self.clip_norm < float("inf"):
            raise InputError(f"--clip-norm {self.clip_norm}: must be positive and finite; leave it out to clip nothing")

    def refuse_precision(self, where: str) -> None:
        """Raises InputError, which says `where`, for a loss scale that the optimizer's kernel can't take out."""
        able = [name for name in optimizers.names() if {f"{name}{SCALED}", f"{name}{UNSCALED}"} & KERNELS.keys()]
        if self.precision == "float16" and self.optimizer not in able:
            raise InputError(
                f"{where}: float16 needs a loss scale, and optimizer {self.optimizer!r} can't take it out of the "
                f"gradients: take precision float32 or bfloat16, or optimizer {' or '.join(able)}"
            )

    def refuse_clipping(self, where: str) -> None:
        """Raises InputError, which says `where`, for a norm that the optimizer's kernel can't clip gradients to."""
        able = [name for name in optimizers.names() if "clip" in KERNELS[name].arguments]
        if self.clip_norm is not None and self.optimizer not in able:
            raise InputError(
                f"{where}: optimizer {self.optimizer!r} gives each step a length of its own and clips nothing: leave "
                f"it out, or take optimizer {' or '.join(able)}"
            )


@dataclass(frozen=True, kw_only=True)
class Cached:
    """What is kept of images that are decoded from files."""

    data_cache: DataCache | None = option(
        None,
        "keep decoded images (of imagenet) in memory that the ranks of a node share: exact, which changes no number, "
        "or reduced to the size that test images have, faster and smaller (crops come from the reduced ones); files: "
        "only copies, in --data-cache-folder",
        unset="not kept",
    )
    data_cache_memory: int | None = option(
        None,
        "most memory of the data cache on a node, in MiB",
        metavar="MIB",
        least=1,
        most=MOST_MEGABYTES,
        unset="a quarter of what is free",
        needs="data_cache",
    )
    data_cache_folder: str | None = option(
        None,
        "also keep copies of the files of --data-folder here, on each node's own disk; later runs read them",
        metavar="FOLDER",
        unset="no copies",
        needs="data_cache",
    )
    data_cache_disk: int | None = option(
        None,
        "most of --data-cache-folder, in MiB",
        metavar="MIB",
        least=1,
        most=MOST_MEGABYTES,
        unset="half of what is free",
        needs="data_cache_folder",
    )


@dataclass(frozen=True, kw_only=True)
class Course:
    """What is trained on, and for how long."""

    data: str = option(
        "digits",
        "digits (scikit-learn's), mnist, cifar10, imagenet (from --data-folder), text (Python's documentation, or "
        "--data-folder) for bert_base, translation (generated sentences, or --data-folder) or wmt17 (from "
        "--data-folder) for transformer, or synthetic",
    )
    data_folder: str | None = option(
        None,
        "where mnist, cifar10, imagenet, parallel text lie; of text a file, or a folder of *.txt",
        metavar="FOLDER",
    )
    epochs: int = option(2, "passes over the data", metavar="N", least=1, most=MOST_COUNT, configured=6)
    iterations: int = option(0, "stop after so many; 0: whole epochs", metavar="N", least=0, most=MOST_COUNT)

    def turns(self, an_epoch: int) -> int:
        """The iterations of a training, of whose samples `an_epoch` iterations take all."""
        whole = an_epoch * self.epochs
        return min(whole, self.iterations) if self.iterations else whole


@dataclass(frozen=True, kw_only=True)
class Training(Cached, Course, Steps, OnDevice, Compute):
    """All of it: what ranks are told, and what their results record."""

    lr_schedule: str = option(
        learning_rates.CONSTANT,
        "what the learning rate is multiplied by: constant, linear or cosine (down to 0), step:EVERY[,FACTOR], or "
        "inverse_sqrt (of the iterations, as the Transformer's)",
        metavar="NAME",
    )
    warmup_iterations: int = option(
        0, "first iterations, in which the learning rate rises in equal steps", metavar="N", least=0, most=MOST_COUNT
    )
    recipe: tuple[str, ...] = option(
        (),
        f"a stage of the training, in order (may be repeated): {recipes.FORM}; in place of --epochs",
        flag="--stage",
        repeated=True,
        metavar="STAGE",
    )
    target_accuracy: float | None = option(
        None,
        "end the training of a seed once every contender has reached this test accuracy at the end of an epoch",
        metavar="A",
        unset="not ended early",
    )
    label_smoothing: float | None = option(
        None, "of translations, what share of each label is spread over all tokens", metavar="X", unset="0.1"
    )
    block: int = option(6, "iterations before the next contender has its turn", metavar="N", least=2, most=MOST_COUNT)
    seeds: tuple[int, ...] = option(
        (0,), "one training of every contender for each", flag="--seed", metavar="N", least=0, most=MOST_SEED
    )
    references: bool = option(True, "also train without communication, and on one rank alone")
    reference: str = option("wfbp", "the contender that ratios are to", metavar="NAME")
    conformance: int = option(
        3, "steps that plans are held against the oracle; 0: none", metavar="STEPS", least=0, most=MOST_COUNT
    )
    checkpoint_seconds: float = option(120.0, "seconds between checkpoints", metavar="S", least=0)
    paper: str = option("", "the paper whose tables and figures show the launch", metavar="KEY", configured="mgwfbp")

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of its recipe, with everything that they leave open; one if it has none."""
        given = recipes.stages(self.recipe) or (Stage(self.epochs),)
        return tuple(
            Stage(
                stage.epochs,
                self.size if stage.size is None else stage.size,
                self.batch if stage.batch is None else stage.batch,
                self.lr if stage.lr is None else stage.lr,
            )
            for stage in given
        )

    def learning_rate(self, turns: int, first: Sequence[int] = (0,)) -> LearningRate:
        """The learning-rate schedule of a training of so many iterations, whose stages begin with those of `first`."""
        factors = [(turn, stage.lr / self.lr) for turn, stage in zip(first, self.stages, strict=False) if stage.lr]
        stages = tuple(factors) if self.recipe and any(factor != 1 for _, factor in factors) else ()
        return LearningRate(self.lr_schedule, self.warmup_iterations, turns, stages)

    def refuse_rate(self, turns: int) -> None:
        """Raises InputError for a schedule that does not exist, and for warm-up that does not end in so many."""
        learning_rates.parse(self.lr_schedule)
        if any(stage.lr is not None for stage in recipes.stages(self.recipe)) and not self.lr:
            raise InputError("--lr 0: rates of stages are multiples of it: give a rate above 0")
        if self.target_accuracy is not None and not 0 < self.target_accuracy <= 1:
            raise InputError(f"--target-accuracy {self.target_accuracy:g}: a share, above 0 and at most 1")
        if self.warmup_iterations and self.warmup_iterations >= turns:
            raise InputError(
                f"--warmup-iterations {self.warmup_iterations}: a training has {turns} iterations: fewer of them"
            )
