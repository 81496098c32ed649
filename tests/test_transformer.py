"""Chapter 6: the whole model, its configurations and the record of its attention."""

import math
import re
from dataclasses import replace

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from conftest import (
    VOCABULARY_SIZE,
    assert_causal,
    assert_padding_invariant,
    gradients,
    pairs,
    random_mask,
    rectangle,
    sentences,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from annotated_transformer.attention import causal_mask
from annotated_transformer.multi_head import MultiHeadAttention
from annotated_transformer.support.figures import linked_figure
from annotated_transformer.support.paper import paper_facts
from annotated_transformer.support.parity import pytorch_twin, states_of_both
from annotated_transformer.transformer import (
    DecoderLayer,
    Encoder,
    Transformer,
    TransformerConfig,
    count_parameters,
    record_attention,
)

SMALL = TransformerConfig(
    VOCABULARY_SIZE, num_layers=2, d_model=16, d_ff=32, num_heads=4, max_length=12
)
norms = st.sampled_from(["post", "pre"])
kinds = st.sampled_from(["sinusoidal", "learned"])
ROWS = [entry["row"] for entry in paper_facts()["table3"]]


def small(**changes: object) -> Transformer:
    """A small model as it stands in evaluation, with norms moved off their
    initialization."""
    model = Transformer(replace(SMALL, **changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return model


@given(pairs=pairs, norm=norms, kind=kinds)
def test_logits_for_each_target_position(pairs: list, norm: str, kind: str) -> None:
    """Fails when ``forward`` swaps source and target."""
    source, target = (rectangle(side) for side in zip(*pairs, strict=True))
    model = small(norm=norm, positions=kind)
    logits = model(source, target)
    assert logits.shape == (*target.shape, VOCABULARY_SIZE)
    assert_close(logits, model.decode(target, model.encode(source), source))


@given(
    pairs=pairs,
    extra=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    norm=norms,
    kind=kinds,
)
def test_padding_changes_nothing(
    pairs: list, extra: tuple[int, int], norm: str, kind: str
) -> None:
    """Fails when the encoder, or the attention over the memory, does not mask
    padding."""
    assert_padding_invariant(small(norm=norm, positions=kind), pairs, extra)


@given(source=sentences, target=sentences, data=st.data(), norm=norms)
def test_the_future_cannot_be_seen(
    source: list[int], target: list[int], data: st.DataObject, norm: str
) -> None:
    """Fails when the decoder has no causal mask."""
    assert_causal(
        small(norm=norm), source, target, data.draw(st.integers(0, len(target) - 1))
    )


def test_padding_inside_a_target_is_not_looked_at() -> None:
    """Fails when the decoder's mask is the causal one alone."""
    model, source, target = small(), torch.tensor([[5, 6]]), torch.tensor([[1, 0, 7]])
    with record_attention(model) as weights:
        model(source, target)
    assert (weights["decoder.layers.0.self_attention"][0, :, 2, 1] == 0).all()


def test_a_source_of_nothing_but_padding_gives_numbers() -> None:
    """Fails when the fused path is replaced by a plain softmax over scores of minus
    infinity."""
    model = small()
    logits = model(torch.zeros(1, 3, dtype=torch.long), torch.tensor([[1, 5]]))
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@given(n=st.integers(1, 6), norm=norms)
def test_an_encoder_without_positions_is_blind_to_order(n: int, norm: str) -> None:
    """Fails when a causal mask reaches the encoder."""
    encoder, x, order = (
        Encoder(replace(SMALL, norm=norm)).eval(),
        torch.randn(2, n, 16),
        torch.randperm(n),
    )
    assert_close(encoder(x[:, order]), encoder(x)[:, order], atol=1e-5, rtol=1e-4)


def in_their_order(ours: Transformer) -> list[Tensor]:
    """Our two stacks as ``nn.Transformer`` lists its parameters, with zeros for its
    biases of attention."""
    tensors = []
    for stack in (ours.encoder, ours.decoder):
        for layer in stack.layers:
            decoder = isinstance(layer, DecoderLayer)
            for attention in [layer.self_attention] + (
                [layer.cross_attention] if decoder else []
            ):
                q, k, v, o = (
                    projection.weight.data for projection in attention.children()
                )
                tensors += [
                    torch.cat([q, k, v]),
                    o.new_zeros(3 * o.size(0)),
                    o,
                    o.new_zeros(o.size(0)),
                ]
            middle = [layer.cross_attention_residual] if decoder else []
            residuals = [
                layer.self_attention_residual,
                *middle,
                layer.feed_forward_residual,
            ]
            tensors += [p.data for p in layer.feed_forward.parameters()]
            tensors += [
                p.data
                for residual in residuals
                for p in residual.layer_norm.parameters()
            ]
        tensors += [p.data for p in stack.final_norm.parameters()]
    return tensors


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_equals_pytorch_with_the_same_weights(norm: str) -> None:
    """Outputs and gradients of both stacks. Fails when the encoder drops its final
    norm, or the decoder its memory."""
    ours = small(norm=norm, dropout=0.0).double()
    theirs = nn.Transformer(
        16,
        4,
        2,
        2,
        32,
        0.0,
        batch_first=True,
        norm_first=norm == "pre",
        dtype=torch.float64,
    )
    if norm == "post":  # theirs has a norm at the end of each stack, the paper none
        theirs.encoder.norm = theirs.decoder.norm = None
    for number, piece in zip(theirs.parameters(), in_their_order(ours), strict=True):
        assert number.shape == piece.shape
        number.data.copy_(piece)
    x, y = (
        torch.randn(2, n, 16, dtype=torch.float64, requires_grad=True) for n in (5, 4)
    )
    words = random_mask(2, 1, 5) | (torch.arange(5) == 0)
    output = ours.decoder(y, ours.encoder(x, words), causal_mask(4), words)
    hidden = ~words.squeeze(1)  # theirs marks what may not be attended to
    masks = {
        "tgt_mask": ~causal_mask(4),
        "src_key_padding_mask": hidden,
        "memory_key_padding_mask": hidden,
    }
    expected = theirs(x, y, **masks)
    assert_close(output, expected)
    assert_close(gradients(output, x, y), gradients(expected, x, y))


@pytest.mark.parametrize("row", ROWS)
def test_parameters_of_table_3_are_those_of_the_formula(row: str) -> None:
    """Fails when the shared matrix is counted twice, and when a row forgets its own
    d_k."""
    facts = {entry["row"]: entry for entry in paper_facts()["table3"]}
    f = facts["base"] | facts[row]
    with torch.device("meta"):
        model = Transformer(TransformerConfig.table_3(row, vocabulary_size=1000))
    attention = 2 * f["h"] * (f["d_k"] + f["d_v"]) * f["d_model"]
    feed_forward = 2 * f["d_model"] * f["d_ff"] + f["d_ff"] + f["d_model"]
    norm = 2 * f["d_model"]
    layers = f["N"] * (
        (attention + feed_forward + 2 * norm)
        + (2 * attention + feed_forward + 3 * norm)
    )
    positions = model.config.max_length * f["d_model"] if row == "E" else 0
    assert count_parameters(model) == 1000 * f["d_model"] + layers + positions


def test_table_3_follows_the_paper() -> None:
    """Fails when ``big`` or ``base`` loses one of the paper's numbers."""
    assert TransformerConfig.table_3("base", 50) == TransformerConfig.base(50)
    assert TransformerConfig.table_3("big", 50) == TransformerConfig.big(50)
    for ours, theirs in (
        (TransformerConfig.base(), "base"),
        (TransformerConfig.big(), "big"),
    ):
        facts = paper_facts()[theirs]
        assert [
            ours.num_layers,
            ours.d_model,
            ours.d_ff,
            ours.num_heads,
            ours.dropout,
        ] == [facts[name] for name in ("layers", "d_model", "d_ff", "heads", "dropout")]
    assert TransformerConfig.table_3("E").positions == "learned"
    assert Transformer(TransformerConfig.tiny(50)).config.vocabulary_size == 50


def test_dropout_in_training_and_not_in_evaluation() -> None:
    """Fails when the sums of embeddings and positions are not dropped out."""
    model, source, target = (
        small(dropout=0.5),
        torch.tensor([[5, 6, 7]]),
        torch.tensor([[1, 8]]),
    )
    assert_close(model(source, target), model(source, target), atol=0, rtol=0)
    model.train()
    assert (model.embed(source) == 0).float().mean() > 0.2
    assert not torch.equal(model(source, target), model(source, target))


def test_the_first_loss_is_near_ln_v() -> None:
    """ln V, and half the variance of the logits. Fails when Xavier's initialization is
    used for the shared embedding."""
    model = Transformer(replace(SMALL, vocabulary_size=1000, d_model=64, dropout=0.0))
    source, target, answer = (torch.randint(3, 1000, (20, 10)) for _ in range(3))
    loss = F.cross_entropy(model(source, target).flatten(0, 1), answer.flatten())
    assert abs(loss.item() - math.log(1000) - 0.5) < 0.2


def test_a_saved_model_says_the_same() -> None:
    """Fails when a part of the model is missing from its state."""
    model, source, target = (
        small(positions="learned"),
        torch.tensor([[5, 6]]),
        torch.tensor([[1, 8]]),
    )
    other = Transformer(model.config).eval()
    other.load_state_dict(
        safetensors.torch.load(safetensors.torch.save(model.state_dict()))
    )
    assert torch.equal(other(source, target), model(source, target))


def test_record_holds_the_weights_of_every_attention() -> None:
    """Fails when a module is left out, and when the record changes the outputs."""
    model, source, target = (
        small(),
        rectangle([[5, 6, 7], [8]]),
        rectangle([[1, 9], [1, 4]]),
    )
    plain = model(source, target)
    with record_attention(model) as weights:
        recorded = model(source, target)
    assert_close(recorded, plain)
    assert set(weights) == {
        name
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
    }
    for name, tensor in weights.items():
        n_q, n_k = (
            (3, 3)
            if name.startswith("encoder")
            else (2, 2)
            if name.endswith("self_attention")
            else (2, 3)
        )
        assert tensor.shape == (2, 4, n_q, n_k) and not tensor.requires_grad
        assert_close(tensor.sum(dim=-1), torch.ones(2, 4, n_q))
        assert (
            n_k == n_q == 2 or (tensor[1, ..., 1:] == 0).all()
        )  # the second source is one word long


def test_record_ends_with_its_block_even_when_it_fails() -> None:
    """Fails when the hooks stay."""
    model, source = small(), torch.tensor([[5, 6]])
    with pytest.raises(RuntimeError, match="stop"), record_attention(model) as weights:
        raise RuntimeError("stop")
    model.encode(source)
    assert not weights


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"vocabulary_size": 0},
            "vocabulary_size is 0, expected a whole number of at least 1",
        ),
        ({"num_layers": 1.5}, "num_layers is 1.5, expected a whole number"),
        ({"d_k": 0}, "d_k is 0, expected a whole number"),
        ({"dropout": 1.0}, "dropout is 1.0, expected a share from 0 up to"),
        ({"norm": "middle"}, "norm is 'middle', expected one of 'post', 'pre'"),
        (
            {"positions": "none"},
            "positions is 'none', expected one of 'sinusoidal', 'learned'",
        ),
        ({"activation": "swish"}, "activation is 'swish', expected one of 'relu'"),
        (
            {"pad_id": VOCABULARY_SIZE},
            "pad_id is 20, expected a token id below vocabulary_size 20",
        ),
    ],
)
def test_choices_that_make_no_model_are_named(changes: dict, message: str) -> None:
    """Fails, for each row of the table, when its check is taken out."""
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 3}, "d_model 16 is not divisible by num_heads 3"),
        ({"d_model": 15, "num_heads": 3}, "d_model is 15, expected an even number"),
    ],
)
def test_widths_that_do_not_divide_are_named(changes: dict, message: str) -> None:
    """Fails when attention or positions take any width."""
    with pytest.raises(ValueError, match=message):
        Transformer(replace(SMALL, **changes))


def test_a_row_that_table_3_does_not_have_is_named() -> None:
    """Fails when the lookup is left to the dictionary."""
    with pytest.raises(ValueError, match="row is 'F', expected one of base, A1"):
        TransformerConfig.table_3("F")


GOOD = torch.tensor([[5, 6, 7]])


@pytest.mark.parametrize(
    ("source", "target", "error", "message"),
    [
        (
            GOOD.float(),
            GOOD,
            TypeError,
            "tokens has dtype torch.float32, expected torch.int64",
        ),
        (
            GOOD,
            GOOD == 5,
            TypeError,
            "tokens has dtype torch.bool, expected torch.int64",
        ),
        (GOOD[0], GOOD, ValueError, r"shape \(3,\), expected \(batch, length\)"),
        (GOOD[:0], GOOD[:0], ValueError, r"shape \(0, 3\).*empty batches"),
        (GOOD, GOOD[:, :0], ValueError, r"shape \(1, 0\)"),
        (GOOD, GOOD + 13, IndexError, "index out of range"),
        (GOOD - 6, GOOD, IndexError, "index out of range"),
        (
            GOOD,
            GOOD.expand(4, -1),
            ValueError,
            "hold 1, 1 and 4 sentences.*repeat_interleave",
        ),
        (GOOD.repeat(1, 5), GOOD, ValueError, "15 tokens is longer than max_length 12"),
        (GOOD, GOOD.repeat(1, 5), ValueError, "15 tokens is longer than max_length 12"),
    ],
)
def test_bad_tokens_are_named(
    source: Tensor, target: Tensor, error: type[Exception], message: str
) -> None:
    """Fails, for each row of the table, when its check is taken out."""
    with pytest.raises(error, match=message):
        small()(source, target)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_with_dropout_where_the_paper_has_it_pytorch_drops_the_same() -> None:
    """For one sentence at a time: with more, the two lay out their numbers in different
    orders. Fails when a dropout of ours moves, or another one comes."""
    ours = small(dropout=0.3).double().train()
    theirs = pytorch_twin(ours).train()
    for module in theirs.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.3
    for layer in [*theirs.encoder.layers, *theirs.decoder.layers]:
        layer.dropout.p = 0.0  # inside the feed-forward network
    x, y = torch.randn(2, 1, 4, 16, dtype=torch.float64)
    torch.manual_seed(1)
    mine = ours.decoder(y, ours.encoder(x), causal_mask(4))
    torch.manual_seed(1)
    other = theirs(x, y, tgt_mask=~causal_mask(4))
    assert_close(mine, other)
    assert not torch.allclose(mine, ours.decoder(y, ours.encoder(x), causal_mask(4)))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("bias", [False, True])
def test_the_twin_says_the_same(norm: str, bias: bool) -> None:
    """Fails when a weight goes under a wrong name, or a mask is not inverted."""
    ours = small(norm=norm, attention_bias=bias).double()
    source, target = rectangle([[5, 6, 7], [8]]), rectangle([[1, 9], [1, 4]])
    with torch.no_grad():
        assert_close(*states_of_both(ours, pytorch_twin(ours), source, target))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_model_without_a_twin_is_refused() -> None:
    """Fails when a weight without counterpart is left out in silence."""
    model = small()
    model.encoder.scale = nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match="no counterpart for .'encoder.scale'. of"):
        pytorch_twin(model)


def test_later_choices_reach_every_part() -> None:
    """Fails when a choice of later models is dropped on its way to a layer."""
    model = small(activation="gelu_tanh", attention_bias=True, norm_eps=1e-12)
    x = torch.linspace(-3, 3, 7)
    assert_close(
        model.decoder.layers[1].feed_forward.activation(x),
        F.gelu(x, approximate="tanh"),
    )
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            assert module.output_projection.bias is not None
        assert not isinstance(module, nn.LayerNorm) or module.eps == 1e-12


def test_figure_1_links_to_every_chapter_that_builds_it() -> None:
    """Fails when a box of the drawing loses its link, or gets another."""
    links = re.findall(r"(\d\d)_\w+\.html\"", linked_figure("transformer"))
    assert set(links) == {"02", "03", "04", "05", "06"}


def test_figure_1_in_a_notebook_links_to_notebooks(monkeypatch) -> None:
    """Fails when Jupyter gets links to pages that are not there."""
    monkeypatch.setenv("JPY_SESSION_NAME", "a.ipynb")
    figure = linked_figure("transformer")
    assert ".html" not in figure and "04_feed_forward_and_norm.ipynb" in figure
