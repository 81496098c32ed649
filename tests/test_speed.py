"""Appendix D: the fast training loss is the simple one, and neither waits for a GPU.

The meta device has shapes and no numbers. A step on it raises where a number would be
read back to the host, and where a tensor lies on another device.
"""

import math
import weakref
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from conftest import VOCABULARY_SIZE
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from annotated_transformer import transformer
from annotated_transformer.attention import causal_mask
from annotated_transformer.data import Batch, make_batch
from annotated_transformer.optimization import (
    label_smoothed_cross_entropy,
    transformer_optimizer,
)
from annotated_transformer.speed import (
    FastTraining,
    Packed,
    PackedBatch,
    cheap_dropout,
    chunked_cross_entropy,
    packed_loss,
    project_together,
)
from annotated_transformer.training import batch_loss
from annotated_transformer.transformer import Transformer, TransformerConfig

SHAPE = TransformerConfig(VOCABULARY_SIZE, 2, 16, 32, 2, dropout=0.0, max_length=8)
PADDED = make_batch(
    [([5, 6, 7], [8, 9]), ([4] * 6, [5] * 7), ([10], [11, 12, 13]), ([9, 8], [7])]
)
FULL = make_batch([([5, 6, 7], [8, 9]), ([4, 5, 6], [7, 10])])
"""Without padding on either side."""


# Ready for a GPU


def simple_loss(model: Transformer, batch: Batch) -> Tensor:
    """The loss of chapter 11, a token."""
    loss_sum, tokens = batch_loss(model, batch, 0.1)
    return loss_sum / tokens


def fast_loss(model: Transformer, batch: Batch) -> Tensor:
    """The loss of appendix D, a token; the batch is packed on the CPU."""
    loss_sum, tokens = packed_loss(FastTraining(model), batch, 0.1)
    return loss_sum / tokens


def step_on_meta(
    loss_of: Callable[[Transformer, Batch], Tensor],
    kind: type[Transformer] = Transformer,
) -> Transformer:
    """Forward, loss, backward and a step of Adam, with dropout, on the meta device."""
    with torch.device("meta"):
        model = kind(replace(SHAPE, dropout=0.1)).train()
    optimizer = transformer_optimizer(model)
    loss = loss_of(model, PADDED)
    loss.backward()
    optimizer.step()
    assert loss.is_meta and all(weight.grad.is_meta for weight in model.parameters())
    moments = [state["exp_avg"] for state in optimizer.state.values()]
    assert len(moments) == len([*model.parameters()])
    assert all(moment.is_meta for moment in moments)
    return model


LOSSES = [simple_loss, fast_loss]


@pytest.mark.parametrize("loss_of", LOSSES)
def test_a_step_reads_no_number_back(loss_of: Callable) -> None:
    """Fails when a GPU would be waited for, or would meet a tensor of the CPU."""
    step_on_meta(loss_of)


class Asking(Transformer):
    """A model that looks at a number on its way through the encoder."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        norm = self.encoder.layers[0].feed_forward_residual.layer_norm
        norm.register_forward_hook(lambda module, x, y: None if y.max().item() else y)


@pytest.mark.parametrize("loss_of", LOSSES)
def test_a_number_that_is_read_back_is_seen(loss_of: Callable) -> None:
    """Fails when the test above could not see a ``.item()``."""
    with pytest.raises(RuntimeError, match="item.* meta"):
        step_on_meta(loss_of, Asking)


def test_a_mask_on_the_cpu_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when the test above could not see a tensor that stayed on the CPU, be it
    the mask of the simple model or the packed batch of the fast one."""
    monkeypatch.setattr(transformer, "causal_mask", lambda n, device: causal_mask(n))
    with pytest.raises(RuntimeError, match="device"):
        step_on_meta(simple_loss)
    monkeypatch.setattr(PackedBatch, "to", lambda batch, device: batch)
    with pytest.raises(RuntimeError, match="device"):
        step_on_meta(fast_loss)


@pytest.mark.parametrize(
    ("backend", "batch"),
    [("eager", PADDED), ("aot_eager", PADDED), ("aot_eager", FULL)],
    ids=["eager", "aot_eager", "aot_eager, full"],
)
def test_both_losses_compile_whole(backend: str, batch: Batch) -> None:
    """By ``torch.compile``, with backends that need no compiler of C. Fails when
    something in the forward pass breaks the graph, or when compiling changes the loss
    or a gradient."""
    model, packed = Transformer(replace(SHAPE, num_layers=1)), PackedBatch.of(batch)
    fast = FastTraining(model, chunk=5)
    for loss in (lambda: batch_loss(model, batch, 0.1)[0], lambda: fast(packed, 0.1)):
        torch._dynamo.reset()
        compiled = torch.compile(loss, fullgraph=True, backend=backend)
        found = [value_and_gradients(f, model) for f in (loss, compiled)]
        assert_close(*found)


def test_a_batch_goes_to_a_gpu_through_pinned_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of its seven tensors. Fails when the CPU waits for the GPU to fetch one, and
    when memory is pinned where there is no GPU."""
    pinned, moved = [], []
    monkeypatch.setattr(Tensor, "pin_memory", lambda x: (pinned.append(id(x)), x)[1])

    def moving(x: Tensor, device: str, non_blocking: bool) -> Tensor:
        moved.append((id(x), device, non_blocking))
        return x

    monkeypatch.setattr(Tensor, "to", moving)
    batch = PackedBatch.of(PADDED)
    batch.to("cpu")
    assert len(moved) == 7 and pinned == []
    moved.clear()
    batch.to("cuda:1")
    assert moved == [(x, "cuda:1", True) for x in pinned] and len(pinned) == 7


def value_and_gradients(
    loss_of: Callable[[], Tensor], model: nn.Module
) -> tuple[Tensor, list[Tensor]]:
    """A loss, and its gradient of each weight of ``model``."""
    model.zero_grad()
    loss = loss_of()
    loss.backward()
    return loss.detach(), gradients_of(model)


def gradients_of(model: nn.Module) -> list[Tensor]:
    """What ``.grad`` of each weight holds."""
    return [weight.grad for weight in model.parameters()]


def test_decoder_self_attention_is_causal_without_a_mask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a batch that is padded on the right. Fails when a mask is made, which
    FlashAttention does not take, or when another attention is causal."""
    calls, kernel = [], F.scaled_dot_product_attention

    def seen(q, k, v, mask=None, is_causal=False):
        calls.append((q.size(-2), k.size(-2), mask is None, is_causal))
        return kernel(q, k, v, mask, is_causal=is_causal)

    monkeypatch.setattr(F, "scaled_dot_product_attention", seen)
    for batch, full in ((PADDED, False), (FULL, True)):
        calls.clear()
        packed_loss(FastTraining(Transformer(SHAPE)), batch, 0.1)
        n, m = batch.source.size(1), batch.target_input.size(1)
        encoder, decoder = calls[:2], calls[2:]
        assert encoder == 2 * [(n, n, full, False)]
        assert decoder == 2 * [(m, m, True, True), (m, n, full, False)]


# The same loss, the same gradients

CHOICES = [
    {},
    {"norm": "pre"},
    {"positions": "learned"},
    {"norm": "pre", "positions": "learned", "attention_bias": True},
    {"attention_bias": True},
    {"d_k": 3, "d_v": 5},
    {"d_k": 12, "d_v": 4, "attention_bias": True, "norm": "pre"},
    {"activation": "gelu", "norm_eps": 1e-3},
]


def scrambled(**choices: object) -> Transformer:
    """A model of such a shape, whose biases and norms are random too."""
    model = Transformer(replace(SHAPE, **choices))
    for weight in model.parameters():
        if weight.dim() == 1:
            weight.data += 0.3 * torch.randn_like(weight)
    return model


@pytest.mark.parametrize("choices", CHOICES, ids=str)
@pytest.mark.parametrize("batch", [PADDED, FULL], ids=["padded", "full"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_fast_loss_is_the_simple_loss(
    choices: dict, batch: Batch, smoothing: float
) -> None:
    """And so are the gradients of all weights and the count of tokens. Fails when
    padding reaches the loss, when a position, a bias or a norm is left out, or when the
    last chunk is not a whole one."""
    model = scrambled(**choices)
    simple = value_and_gradients(lambda: batch_loss(model, batch, smoothing)[0], model)
    for chunk in (1, 4, 5, 256):
        fast = FastTraining(model, chunk)
        model.zero_grad()
        found, tokens = packed_loss(fast, batch, smoothing)
        assert int(tokens) == batch.tokens and found.dtype == torch.float32
        found.backward()
        gradients = gradients_of(model)
        assert_close((found.detach(), gradients), simple, atol=2e-5, rtol=1e-5)


def test_the_fast_loss_in_double_precision() -> None:
    """To the last digits. Fails when some part of the fast way loses digits, which
    the tolerance above would forgive. (Attention on a CPU is always in 32 bits.)"""
    states, weight = (torch.randn(n, 6, dtype=torch.double) for n in (11, 9))
    inputs = states.requires_grad_(), weight.requires_grad_()
    targets = torch.randint(1, 9, (11,))
    simple, _ = label_smoothed_cross_entropy(
        (states @ weight.T)[None], targets[None], 0.1
    )
    for chunk in (1, 3, 11, 50):
        fast = chunked_cross_entropy(*inputs, targets, 0.1, chunk)
        for ours, theirs in zip(
            [fast, *torch.autograd.grad(3 * fast, inputs)],
            [simple, *torch.autograd.grad(3 * simple, inputs, retain_graph=True)],
            strict=True,
        ):
            assert_close(ours, theirs, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_fast_loss_in_16_bits_is_near(norm: str) -> None:
    """Under autocast. Fails when a sum over the vocabulary is taken in 16 bits, or when
    a gradient does not come back in 32."""
    model = scrambled(norm=norm)
    exact = value_and_gradients(lambda: batch_loss(model, PADDED, 0.1)[0], model)

    def mixed() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return packed_loss(FastTraining(model, 5), PADDED, 0.1)[0]

    found = value_and_gradients(mixed, model)
    assert found[0].dtype == torch.float32 and not torch.equal(found[0], exact[0])
    assert_close(found[0], exact[0], rtol=2e-2, atol=0)
    ours, theirs = (torch.cat([g.flatten() for g in f[1]]) for f in (found, exact))
    assert ours.dtype == torch.float32
    assert (ours - theirs).norm() < 2e-2 * theirs.norm()


def test_large_logits_do_not_overflow() -> None:
    """Fails when the largest logit is not taken off before the exponential."""
    states, weight = 1e3 * torch.eye(4), torch.eye(4)
    loss = chunked_cross_entropy(states, weight, torch.tensor([0, 1, 2, 0]), 0.0, 3)
    assert loss.item() == pytest.approx(1e3)


def test_packing_undoes_itself() -> None:
    """Fails when a token changes places, or when padding keeps a number."""
    for batch, full in ((PADDED, False), (FULL, True)):
        side = Packed.of(batch.source)
        assert side.full is full and (side.tokens != 0).all()
        rectangle = side.unpack(side.tokens[:, None].float()).squeeze(-1)
        assert torch.equal(rectangle.long(), batch.source)
        assert torch.equal(side.pack(rectangle[..., None])[:, 0].long(), side.tokens)


@pytest.mark.parametrize("bias", [True, False])
def test_one_product_is_several(bias: bool) -> None:
    """Fails when the parts are cut elsewhere than the layers end."""
    x, layers = torch.randn(2, 3, 4), [nn.Linear(4, n, bias=bias) for n in (2, 5, 3)]
    for ours, layer in zip(project_together(x, *layers), layers, strict=True):
        assert_close(ours, layer(x))


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_cheap_dropout_drops_as_dropout(p: float) -> None:
    """The share, what is left, and its gradient; each number by itself. Fails when the
    two halves of one draw go together, or when what is left is not scaled."""
    x = torch.rand(999, 501, requires_grad=True)  # an odd number of them
    y = cheap_dropout(x, p)
    kept = (y != 0).float()
    assert_close(y, x * kept / (1 - p))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert_close(gradient, kept / (1 - p))
    error = math.sqrt(p * (1 - p) / x.numel())
    assert abs(kept.mean() - (1 - p)) < 4 * error
    assert abs(y.mean() - 0.5) < 4 * math.sqrt(1 / (1 - p) / x.numel())
    spread = (kept - (1 - p)).flatten()
    for apart in (1, 2, 501):  # the same draw, the next draw, the next row
        together = (spread[apart:] * spread[:-apart]).mean()
        assert abs(together) < 4 * p * (1 - p) / math.sqrt(x.numel())
    rows = kept.mean(dim=1)
    assert rows.std() < 1.3 * math.sqrt(p * (1 - p) / 501)


def test_cheap_dropout_at_its_ends() -> None:
    """Fails when a number is dropped at p = 0, or when the same seed draws other
    masks."""
    x = torch.ones(2**17)
    assert torch.equal(cheap_dropout(x, 0.0), x)
    masks = []
    for _ in range(2):
        torch.manual_seed(3)
        masks.append(cheap_dropout(x, 0.5))
    assert torch.equal(*masks) and not torch.equal(masks[0], cheap_dropout(x, 0.5))


def test_dropout_is_off_in_evaluation_and_on_in_training() -> None:
    """Fails when the fast way drops numbers of a model that is evaluated."""
    model = Transformer(replace(SHAPE, dropout=0.5))
    fast = FastTraining(model)
    losses = [
        packed_loss(fast.train(training), PADDED, 0.1)[0].item()
        for training in (True, True, False, False)
    ]
    assert losses[0] != losses[1] and losses[2] == losses[3]
    assert losses[3] == pytest.approx(batch_loss(model, PADDED, 0.1)[0].item())


# Memory


class Memory(TorchDispatchMode):
    """Within it, the bytes of all tensors that live at once, and the largest made."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.peak, self.largest = 0, 0, 0
        self.known: dict[int, weakref.ref] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, result)):
            if isinstance(tensor, Tensor):
                self.count(tensor)
        return result

    def count(self, tensor: Tensor) -> None:
        """Add the memory of ``tensor``, once for all its views, until it is freed."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return

        def freed(reference: weakref.ref) -> None:
            self.now -= size
            del self.known[key]

        self.known[key] = weakref.ref(storage, freed)
        self.now += size
        self.peak = max(self.peak, self.now)
        self.largest = max(self.largest, tensor.numel())


def loss_memory(
    tokens: int, vocabulary_size: int, d_model: int, device: str, chunk: int | None
) -> Memory:
    """The memory of loss and gradients, inputs counted; no ``chunk``: chapter 10's."""
    with torch.device(device):
        states = torch.randn(tokens, d_model, requires_grad=True)
        weight = torch.randn(vocabulary_size, d_model, requires_grad=True)
        targets = torch.ones(tokens, dtype=torch.long)
    with Memory() as memory:
        if chunk:
            loss = chunked_cross_entropy(states, weight, targets, 0.1, chunk)
        else:
            logits = (states @ weight.T)[None]
            loss, _ = label_smoothed_cross_entropy(logits, targets[None], 0.1)
        loss.backward()
    return memory


def test_the_loss_makes_no_large_tensor() -> None:
    """Fails when the logits of all tokens are made, or a part of them that is larger
    than a chunk."""
    tokens, words, d_model, chunk = 2500, 3700, 32, 64
    memory = loss_memory(tokens, words, d_model, "cpu", chunk)
    assert memory.largest <= max(chunk * words, words * d_model, tokens * d_model)
    assert loss_memory(tokens, words, d_model, "cpu", None).largest >= tokens * words


def test_the_loss_of_the_base_model_stays_within_a_gigabyte() -> None:
    """25,000 tokens over 37,000 subwords, on the meta device, where only the sizes are
    real. Fails when more than a few chunks live at once."""
    assert loss_memory(25_000, 37_000, 512, "meta", 256).peak < 1e9
    assert loss_memory(25_000, 37_000, 512, "meta", None).peak > 10e9
