"""What a value must be, and the error that names it, the expectation and the way out.

No check of a forward pass reads the numbers of a tensor: shapes and types are known
without waiting for the device that holds them.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def check_at_least_one(**sizes: int | None) -> None:
    """Raise ValueError, with its name, for a size that is no whole number of 1 or more.

    None stands for "not given" and passes.
    """
    for name, size in sizes.items():
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(
                f"{name} is {size!r}, expected a whole number of at least 1"
            )


def check_probability(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is from 0 up to, not including, 1."""
    if not 0 <= value < 1:
        raise ValueError(
            f"{name} is {value}, expected a share from 0 up to, not including, 1"
        )


def check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    """Raise ValueError unless ``value`` is one of ``known``."""
    if value not in known:
        wanted = ", ".join(map(repr, known))
        raise ValueError(f"{name} is {value!r}, expected one of {wanted}")


def check_width(name: str, x: Tensor, width: int) -> None:
    """Raise ValueError unless the last axis of ``x`` is ``width`` long."""
    if x.shape[-1:] != (width,):
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}, expected (..., {width}): "
            "d_model comes last, and is the one that the module was built with"
        )


def check_boolean(mask: Tensor) -> None:
    """Raise TypeError unless ``mask`` is boolean."""
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask has dtype {mask.dtype}, expected torch.bool with True for "
            "'may attend'; try mask != 0"
        )


def check_mask(mask: Tensor, scores: tuple[int, ...]) -> None:
    """Raise unless ``mask`` is boolean and broadcasts to the scores ``(..., n_q,
    n_k)``."""
    check_boolean(mask)
    try:
        fits = np.broadcast_shapes(mask.shape, scores) == scores
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"mask {tuple(mask.shape)} does not broadcast to the scores {scores}: "
            "expected (n_q, n_k) with any leading axes that the scores have"
        )


def check_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> None:
    """Raise ValueError or TypeError where attention (section 3.2.1) would be wrong.

    ``query`` is ``(..., n_q, d_k)``, ``key`` ``(..., n_k, d_k)``, ``value`` ``(...,
    n_k, d_v)``; their leading axes broadcast. ``mask`` is boolean and broadcasts to
    ``(..., n_q, n_k)``.
    """
    shapes = (
        f"query {tuple(query.shape)}, key {tuple(key.shape)}, "
        f"value {tuple(value.shape)}"
    )
    if min(query.dim(), key.dim(), value.dim()) < 2:
        raise ValueError(
            f"{shapes}: expected at least two axes, (length, size); "
            "add one with unsqueeze(0)"
        )
    if query.size(-1) != key.size(-1):
        raise ValueError(
            f"{shapes}: query and key must have the same size d_k in their last "
            "axis; project one of them"
        )
    if key.size(-2) != value.size(-2):
        raise ValueError(
            f"{shapes}: expected one value for each key; key and value must agree "
            "in length (axis -2)"
        )
    try:
        # NumPy's: PyTorch's own loads sympy at its first call, which takes a second.
        batch = np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    except ValueError:
        raise ValueError(
            f"{shapes}: the axes before the last two must agree, or be 1; "
            "compare the batch sizes"
        ) from None
    if mask is not None:
        check_mask(mask, (*batch, query.size(-2), key.size(-2)))


def check_head_sizes(
    d_model: int, num_heads: int, d_k: int | None, d_v: int | None
) -> None:
    """Raise ValueError for sizes below 1, and where heads do not divide ``d_model``."""
    check_at_least_one(d_model=d_model, num_heads=num_heads, d_k=d_k, d_v=d_v)
    if d_model % num_heads and (d_k is None or d_v is None):
        raise ValueError(
            f"d_model {d_model} is not divisible by num_heads {num_heads}: "
            "change one, or give d_k and d_v"
        )


def check_multi_head(
    d_model: int, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> None:
    """Raise ValueError where the inputs are not those of multi-head attention.

    Section 3.2.2: ``query`` is ``(batch, n_q, d_model)``, ``key`` and ``value``
    ``(batch, n_k, d_model)``, ``mask`` ``(n_q, n_k)`` or ``(batch, 1 or n_q, n_k)``. A
    batch of 1 stands for any batch. What single heads need, ``check_attention`` sees.
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() != 3 or x.size(-1) != d_model:
            raise ValueError(
                f"{name} {tuple(x.shape)}: expected three axes "
                f"(batch, length, d_model) with d_model {d_model}; "
                "a single sentence becomes a batch with unsqueeze(0)"
            )
    if mask is not None and mask.dim() not in (2, 3):
        raise ValueError(
            f"mask {tuple(mask.shape)}: expected (n_q, n_k) or "
            "(batch, 1 or n_q, n_k); padding_mask and causal_mask make such masks"
        )


def check_sublayer_output(x: Tensor, output: Tensor) -> None:
    """Raise unless a sub-layer's ``output`` is one tensor of its input's shape."""
    if not isinstance(output, Tensor):
        raise TypeError(
            f"the sub-layer returned a {type(output).__name__}, expected a Tensor: "
            "of attention's pair, take its first"
        )
    if output.shape != x.shape:
        raise ValueError(
            f"the sub-layer turned shape {tuple(x.shape)} into "
            f"{tuple(output.shape)}, expected the same: they are added"
        )


def check_even(name: str, value: int) -> None:
    """Raise ValueError unless ``value`` is an even number of at least 2."""
    if value < 2 or value % 2:
        raise ValueError(
            f"{name} is {value}, expected an even number: "
            "sines and cosines, and the two directions of a GRU, come in pairs"
        )


def check_positions(x: Tensor, table: Tensor, start: int) -> None:
    """Raise ValueError where ``x`` reaches beyond ``table``, or is not as wide.

    ``x`` is ``(batch, n, d_model)``, ``table`` ``(max_length, d_model)``, and ``start``
    the position of the first vector of ``x``.
    """
    n, (max_length, d_model) = start + x.size(-2), table.shape
    check_width("x", x, d_model)
    if n > max_length:
        raise ValueError(
            f"a sequence of {n} tokens is longer than max_length {max_length}: "
            "cut it, or build the model for more"
        )


def check_tokens(name: str, tokens: Tensor) -> None:
    """Raise unless ``tokens`` is a batch of token ids ``(batch, length)``, not empty.

    Raises ValueError for another shape, TypeError for another type than whole numbers.
    That each id is below the size of the vocabulary, the embedding sees (IndexError).
    """
    if tokens.dim() != 2 or 0 in tokens.shape:
        raise ValueError(
            f"{name} has shape {tuple(tokens.shape)}, expected (batch, length) with "
            "at least one row and one column: for one sentence pass "
            "tokens.unsqueeze(0); leave empty batches out"
        )
    if tokens.dtype not in (torch.int64, torch.int32):  # what an embedding takes
        raise TypeError(
            f"{name} has dtype {tokens.dtype}, expected torch.int64 or torch.int32: "
            "pass tokens.long()"
        )


def check_same_batch(source: Tensor, memory: Tensor, target: Tensor) -> None:
    """Raise ValueError unless all three hold as many sentences (their first axis)."""
    sizes = source.size(0), memory.size(0), target.size(0)
    if len(set(sizes)) > 1:
        raise ValueError(
            f"source, memory and target hold {sizes[0]}, {sizes[1]} and {sizes[2]} "
            "sentences, expected equal numbers: repeat the source and its memory "
            "with repeat_interleave where one source has several targets"
        )


def check_targets(logits: Tensor, targets: Tensor) -> None:
    """Raise ValueError unless there is one row of logits for each target."""
    if logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)} and targets {tuple(targets.shape)}: "
            "expected (batch, m, vocabulary_size) and (batch, m)"
        )


def check_transformer_config(config: Any) -> None:
    """Raise ValueError, with value and expectation, where ``config`` makes no model."""
    sizes = ("vocabulary_size", "num_layers", "d_ff", "max_length")
    for name in sizes:
        if getattr(config, name) is None:
            raise ValueError(f"{name} is None, expected a whole number of at least 1")
    check_at_least_one(**{name: getattr(config, name) for name in sizes})
    check_head_sizes(config.d_model, config.num_heads, config.d_k, config.d_v)
    check_probability("dropout", config.dropout)
    check_choice("norm", config.norm, ("post", "pre"))
    check_choice("positions", config.positions, ("sinusoidal", "learned"))
    check_choice("activation", config.activation, ("relu", "gelu", "gelu_tanh"))
    if config.positions == "sinusoidal":
        check_even("d_model", config.d_model)
    if not 0 <= config.pad_id < config.vocabulary_size:
        raise ValueError(
            f"pad_id is {config.pad_id}, expected a token id below "
            f"vocabulary_size {config.vocabulary_size}"
        )


def check_training_config(config: Any) -> None:
    """Raise ValueError, with value and expectation, where ``config`` makes no run."""
    for name in (
        *("steps", "max_tokens", "accumulate", "warmup_steps"),
        *("save_every", "keep", "log_every"),
    ):
        if not 1 <= getattr(config, name) < 2**31:
            raise ValueError(
                f"{name} is {getattr(config, name)}, expected at least 1 and less "
                "than 2**31"
            )
    if not 0 <= config.seed < 2**63:
        raise ValueError(
            f"seed is {config.seed}, expected at least 0 and less than 2**63"
        )
    check_probability("smoothing", config.smoothing)
    if not 0 < config.factor < math.inf:
        raise ValueError(
            f"factor is {config.factor}, expected a finite number above 0: "
            "equation 3 has 1"
        )
    if config.clip_norm is not None and not 0 < config.clip_norm < math.inf:
        raise ValueError(
            f"clip_norm is {config.clip_norm}, expected a finite number above 0, or "
            "None for no clipping"
        )
    check_choice("precision", config.precision, ("fp32", "bf16"))


def check_enough_batches(steps_done: int, steps: int) -> None:
    """Raise ValueError where the batches ended before ``steps`` were done."""
    if steps_done < steps:
        raise ValueError(
            f"the batches ended after {steps_done} of {steps} steps: leave out epochs "
            "in token_batches"
        )


def check_finite_step(step: int, **measured: float) -> None:
    """Raise FloatingPointError, with its name, where a measured value is NaN or inf."""
    for name, value in measured.items():
        if not math.isfinite(value):
            raise FloatingPointError(
                f"the {name.replace('_', ' ')} of step {step} is {value}: lower "
                "factor, or raise warmup_steps"
            )


def check_held_out_loss(loss_sum: float, tokens: int) -> None:
    """Raise ValueError for no tokens, FloatingPointError where no float holds exp."""
    if not tokens:
        raise ValueError("no target tokens to evaluate on: are there any batches?")
    if not loss_sum / tokens < 700:  # NaN is not, and e**710 is more than a float
        raise FloatingPointError(
            f"the held-out loss is {loss_sum / tokens}: lower factor, or raise "
            "warmup_steps"
        )


def check_search(beam_size: int, alpha: float) -> None:
    """Raise ValueError for an empty beam, and for an alpha outside of 0 to 10.

    With a negative alpha the penalty of the longest length would bound nothing.
    """
    if not (beam_size >= 1 and 0 <= alpha <= 10):
        raise ValueError(
            f"beam_size is {beam_size} and alpha {alpha}, expected at least 1, and 0 "
            "to 10: the paper's are 4, 0.6"
        )


def check_length_limits(limits: Tensor, extra_length: int) -> None:
    """Raise ValueError where a sentence of a search could not have a single token.

    ``limits`` is ``(batch,)``. Reads its numbers, once before a search begins.
    """
    if (limits < 1).any():
        raise ValueError(
            f"extra_length {extra_length} leaves sentence {int(limits.argmin())} "
            f"{int(limits.min())} tokens, expected at least 1: section 6.1 has an "
            "extra_length of 50; leave sources out that hold padding alone"
        )


def check_pairs(hypotheses: Sequence[Any], references: Sequence[Any]) -> None:
    """Raise ValueError unless each hypothesis has its references; one at least."""
    if len(hypotheses) != len(references) or not len(hypotheses):
        raise ValueError(
            f"{len(hypotheses)} hypotheses and {len(references)} references: "
            "expected as many, and at least one"
        )


def check_odd_window(width: int, query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise ValueError unless a window of ``width`` has a center in one sequence.

    Restricted self-attention (section 4): ``width`` is odd and positive, and query, key
    and value ``(..., n, size)`` agree in n.
    """
    if width < 1 or width % 2 == 0:
        raise ValueError(
            f"width is {width}, expected an odd number: the position itself and as "
            "many on each side"
        )
    lengths = query.size(-2), key.size(-2), value.size(-2)
    if len(set(lengths)) > 1:
        raise ValueError(
            f"query, key and value have lengths {lengths[0]}, {lengths[1]} and "
            f"{lengths[2]}, expected one sequence: restricted attention is "
            "self-attention"
        )


def check_vocabulary_size(tokens: int, expected: int) -> None:
    """Raise ValueError where a vocabulary has another size than the model's."""
    if tokens != expected:
        raise ValueError(
            f"the vocabulary has {tokens} tokens, the model {expected}: "
            "use the vocabulary that the model was trained with"
        )


def check_same_vocabulary(digest: str, expected: str, folder: Any) -> None:
    """Raise ValueError where a vocabulary's SHA-256 is not the one that was saved."""
    if digest != expected:
        raise ValueError(
            f"the vocabulary in {folder} is not the one that its model was trained "
            "with: copy both"
        )


def check_translator_facts(facts: dict[str, Any], fields: Any, folder: Any) -> None:
    """Raise ValueError unless ``facts`` have the configuration of a model, with no
    other names than ``fields``, and the checksum of its vocabulary."""
    missing = {"model", "subwords_sha256"} - facts.keys()
    unknown = set(facts.get("model", ())) - set(fields)
    if missing or unknown or "vocabulary_size" not in facts["model"]:
        raise ValueError(
            f"{folder}/model.json describes no translator (missing "
            f"{sorted(missing)}, unknown {sorted(unknown)}): make one with average"
        )


def check_weights(tensors: dict[str, Tensor]) -> None:
    """Raise ValueError where a weight that is to be saved has no finite value."""
    bad = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if bad:
        raise ValueError(
            f"{bad[0]} has numbers that are not finite, or above 65,504 and too large "
            "for half"
        )


def check_mask_id(mask_id: int, first: int) -> None:
    """Raise ValueError unless words lie between ``first`` and ``mask_id``."""
    if mask_id <= first:
        raise ValueError(
            f"mask_id is {mask_id}, expected an id above {first} and above all tokens: "
            "add one at the end of the vocabulary"
        )


def check_patches(images: Tensor, patch_size: int) -> None:
    """Raise ValueError unless images ``(..., height, width)`` are whole patches."""
    height, width = images.shape[-2:]
    if height % patch_size or width % patch_size:
        raise ValueError(
            f"images of ({height}, {width}) pixels: expected a whole number of patches "
            f"of {patch_size} x {patch_size}; crop or pad them"
        )


def check_patch_count(patches: Tensor, expected: int) -> None:
    """Raise ValueError unless ``patches`` ``(batch, n, size)`` are ``expected``."""
    if patches.size(1) != expected:
        raise ValueError(
            f"{patches.size(1)} patches, expected {expected}: resize the images"
        )


def check_rank(rank: int, world_size: int) -> None:
    """Raise ValueError unless ``rank`` is one of 0 to ``world_size - 1``."""
    if not 0 <= rank < world_size:
        raise ValueError(
            f"rank {rank} of world_size {world_size}: expected a rank from 0 to "
            "world_size - 1"
        )


def check_some_pairs(number: int, rank: int = 0, world_size: int = 1) -> None:
    """Raise ValueError for no sentence pairs at all."""
    if not number:
        raise ValueError(
            f"no pairs for rank {rank} of world_size {world_size}: expected at least "
            "one with text on both sides and no more tokens than allowed"
        )


def check_pair_sizes(sizes: Sequence[int], max_tokens: int) -> None:
    """Raise ValueError for no pairs, or one longer than a whole batch."""
    check_some_pairs(len(sizes))
    if max(sizes) > max_tokens:
        raise ValueError(
            f"a pair of {max(sizes)} tokens, expected none above max_tokens "
            f"{max_tokens}: leave it out (encode_stream) or raise max_tokens"
        )


def check_readable_again(pairs: Any, epochs: int | None) -> None:
    """Raise ValueError where an iterator, which ends once, must serve more epochs."""
    if isinstance(pairs, Iterator) and epochs != 1:
        raise ValueError(
            "an iterator can be read once: expected epochs=1, or pairs that start "
            "anew, as ParallelFiles do"
        )


def check_same_weights(
    weights: dict[str, Tensor], others: dict[str, Tensor], name: Any
) -> None:
    """Raise ValueError unless ``others``, read from ``name``, have the same names and
    shapes as ``weights``."""
    shapes = ({key: t.shape for key, t in each.items()} for each in (weights, others))
    if len({str(sorted(each.items())) for each in shapes}) > 1:
        raise ValueError(
            f"{name} is of another model than the checkpoints before it: average "
            "checkpoints of one run"
        )
