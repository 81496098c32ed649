"""Chapter 10: the learning rate and the smoothed loss."""

import json
import math
from importlib.resources import files

import pytest
import torch
import torch.nn.functional as F
from conftest import gradients, sizes
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from annotated_transformer.optimization import (
    label_smoothed_cross_entropy,
    transformer_learning_rate,
    transformer_optimizer,
)
from annotated_transformer.transformer import Transformer, TransformerConfig


@given(
    step=st.integers(1, 10**6),
    d_model=st.integers(1, 2048),
    warmup=st.integers(1, 10**5),
)
def test_the_rate_climbs_to_the_end_of_the_warmup_and_then_falls(
    step: int, d_model: int, warmup: int
) -> None:
    """Fails when ``min`` becomes ``max``, and when the exponent of the warm-up is
    -0.5."""
    rate = transformer_learning_rate(step, d_model, warmup)
    peak = 1 / math.sqrt(d_model * warmup)
    assert rate == pytest.approx(
        peak * (step / warmup if step <= warmup else math.sqrt(warmup / step))
    )
    assert transformer_learning_rate(
        step, d_model, warmup, factor=2.5
    ) == pytest.approx(2.5 * rate)


def test_adam_has_the_constants_of_the_paper() -> None:
    """Fails with PyTorch's own defaults."""
    facts = json.loads(
        files("annotated_transformer").joinpath("paper/facts.json").read_text()
    )["optimizer"]
    optimizer = transformer_optimizer(nn.Linear(2, 3))
    [group] = optimizer.param_groups
    assert type(optimizer).__name__ == facts["name"]
    assert (*group["betas"], group["eps"]) == (
        facts["beta1"],
        facts["beta2"],
        facts["eps"],
    )
    assert [tuple(parameter.shape) for parameter in group["params"]] == [(3, 2), (3,)]


def test_adam_is_the_update_written_out() -> None:
    """Equal to the update written out, over many steps. Fails without bias correction,
    and when betas are swapped."""
    parameter = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = transformer_optimizer(nn.ParameterList([parameter]))
    theta, m, v = parameter.detach().clone(), 0.0, 0.0
    for step in range(1, 101):
        rate = transformer_learning_rate(step, d_model=16, warmup_steps=10)
        parameter.grad = torch.randn(2, dtype=torch.float64)
        m, v = 0.9 * m + 0.1 * parameter.grad, 0.98 * v + 0.02 * parameter.grad**2
        theta -= rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.98**step)).sqrt() + 1e-9)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        assert_close(parameter.detach(), theta, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_dropout_has_the_locations_of_section_5_4_and_no_other(norm: str) -> None:
    """Fails when a location is added, taken out or moved, and when anything else
    draws random numbers."""
    config = TransformerConfig(
        11, num_layers=2, d_model=8, d_ff=16, num_heads=2, norm=norm, max_length=6
    )
    assert config.dropout == 0.1
    model, names, states = Transformer(config).train(), [], [torch.get_rng_state()]
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            assert module.p == 0.1
            module.register_forward_pre_hook(
                lambda *_: states.append(torch.get_rng_state())
            )
            module.register_forward_hook(
                lambda *_: states.append(torch.get_rng_state())
            )
            module.register_forward_hook(lambda *_, name=name: names.append(name))
    model(torch.ones(2, 5, dtype=torch.long), torch.ones(2, 4, dtype=torch.long))
    states.append(torch.get_rng_state())
    sublayers = {"encoder": ["self_attention", "feed_forward"]}
    sublayers["decoder"] = ["self_attention", "cross_attention", "feed_forward"]
    expected = []
    for stack, parts in sublayers.items():
        expected.append("dropout")
        expected += [
            f"{stack}.layers.{i}.{part}_residual.dropout"
            for i in range(2)
            for part in parts
        ]
    assert names == expected
    assert all(
        left.equal(right) for left, right in zip(states[::2], states[1::2], strict=True)
    )
    assert not any(
        left.equal(right)
        for left, right in zip(states[1::2], states[2::2], strict=False)
    )


@given(
    batch=sizes,
    m=sizes,
    vocabulary_size=st.integers(2, 9),
    smoothing=st.sampled_from([0.0, 0.1, 0.5]),
)
def test_the_loss_is_that_of_pytorch(
    batch: int, m: int, vocabulary_size: int, smoothing: float
) -> None:
    """Values, gradients and the count. Fails when padding counts, and when the mass
    goes to the wrong words only."""
    logits = torch.randn(
        batch, m, vocabulary_size, dtype=torch.float64, requires_grad=True
    )
    targets = torch.randint(0, vocabulary_size, (batch, m))
    loss, count = label_smoothed_cross_entropy(logits, targets, smoothing)
    expected = F.cross_entropy(
        logits.flatten(0, 1),
        targets.flatten(),
        ignore_index=0,
        label_smoothing=smoothing,
        reduction="sum",
    )
    assert_close(loss, expected)
    assert_close(gradients(loss, logits), gradients(expected, logits))
    assert int(count) == sum(token != 0 for row in targets.tolist() for token in row)


def test_padding_has_no_loss_and_no_gradient() -> None:
    """Fails when ``pad_id`` is ignored."""
    logits, targets = (
        torch.randn(1, 3, 5, requires_grad=True),
        torch.tensor([[1, 4, 4]]),
    )
    loss, count = label_smoothed_cross_entropy(logits, targets, pad_id=4)
    [gradient] = gradients(loss, logits)
    assert (
        int(count) == 1 and (gradient[0, 0] != 0).all() and (gradient[0, 1:] == 0).all()
    )
    nothing, none = label_smoothed_cross_entropy(
        logits, torch.zeros(1, 3, dtype=torch.long)
    )
    assert nothing.item() == none.item() == 0


def test_certainty_is_punished() -> None:
    """The smoothed loss is least where the model is as uncertain as the targets. Fails
    when smoothing is ignored."""
    smoothing, size, targets = 0.1, 5, torch.tensor([[2]])
    wanted = torch.full((size,), smoothing / size)
    wanted[2] += 1 - smoothing
    best = label_smoothed_cross_entropy(
        wanted.log().expand(1, 1, -1), targets, smoothing
    )[0]
    assert_close(best, -(wanted * wanted.log()).sum())
    for scale in (0.5, 1.5, 10.0):
        assert (
            label_smoothed_cross_entropy(
                scale * wanted.log().expand(1, 1, -1), targets, smoothing
            )[0]
            > best
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: transformer_learning_rate(0, 512),
            "step is 0, expected a whole number of at least 1",
        ),
        (
            lambda: transformer_learning_rate(1, 512, warmup_steps=0),
            "warmup_steps is 0, expected a whole number of at least 1",
        ),
        (
            lambda: label_smoothed_cross_entropy(
                torch.zeros(2, 3, 5), torch.ones(2, 4, dtype=torch.long)
            ),
            (
                r"logits \(2, 3, 5\) and targets \(2, 4\): expected \(batch, m,"
                r" vocabulary_size\)"
            ),
        ),
    ],
)
def test_bad_input_is_named(call: object, message: str) -> None:
    """Fails, for each row of the table, when its check is taken out."""
    with pytest.raises(ValueError, match=message):
        call()
