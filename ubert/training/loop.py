"""The training loop: one worker or many, CPU or GPU, free of Ray.

A step takes one global batch, whose share of this worker comes as micro-batches. Its loss is (sum over all texts) /
(number of texts), divided once: each worker's gradient is of its own sum over the global number, so it doesn't
matter how texts fall on workers and micro-batches.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import xxhash
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ubert.model import cells
from ubert.model.batch import Batch
from ubert.model.tokenizer import Tokenizer, encoder_path, load_tokenizer
from ubert.model.ubert import UbertModel
from ubert.schema.errors import UserError
from ubert.schema.recipe import Recipe
from ubert.training import checkpoint, log, run_directory
from ubert.training.checkpoint import State
from ubert.training.loader import Loader, Step, open_shards
from ubert.training.optimizer import adamw, set_rates, share_of_peak
