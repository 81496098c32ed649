"""Chapter 19: GPT, BERT, T5 and ViT, held against the models of ``transformers`` with
the same random weights."""

import math
import re

import pytest
import torch
from conftest import assert_causal, assert_padding_invariant, pairs, random_mask
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)
from transformers.models.t5.modeling_t5 import T5Attention

from annotated_transformer.decoding import CachedDecoder
from annotated_transformer.descendants import (
    BERT,
    FULL_SIZE,
    GPT,
    T5,
    MaskedWordPredictor,
    RelativeAttention,
    RelativePositionBias,
    ViT,
    bert_config,
    cut_into_patches,
    distance_bucket,
    full_size,
    gpt_config,
    mask_words,
    vit_config,
)
from annotated_transformer.transformer import (
    TransformerConfig,
    count_parameters,
    record_attention,
)

SIZES = {"num_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 4, "dropout": 0.0}
GPT_CONFIG = gpt_config(20, **SIZES, max_length=12)
BERT_CONFIG = bert_config(20, **SIZES, max_length=12)
T5_CONFIG = TransformerConfig(20, **SIZES | {"d_model": 20}, d_k=4, d_v=4)
VIT_CONFIG = vit_config(5, 6, **SIZES)
REFERENCES = {
    "GPT-2 small": lambda: GPT2LMHeadModel(GPT2Config()),
    "BERT base": lambda: BertModel(BertConfig()),
    "T5 small": lambda: T5ForConditionalGeneration(T5Config(num_layers=6, num_heads=8)),
    "ViT-B/16": lambda: ViTForImageClassification(ViTConfig(num_labels=1000)),
}


def randomized(model: nn.Module) -> nn.Module:
    """The model in evaluation mode, every parameter random and none zero: an unused one
    would show."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


def renamed(parameters: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    """The parameters under our names; each must be matched by exactly one of the
    patterns."""
    found = {}
    for name, parameter in parameters.items():
        ours = [
            re.sub(pattern, new, name)
            for pattern, new in names.items()
            if re.fullmatch(pattern, name)
        ]
        assert len(ours) == 1, f"{name} is matched by {len(ours)} patterns"
        found[ours[0]] = parameter.detach()
    return found


def load(model: nn.Module, parameters: dict[str, Tensor]) -> nn.Module:
    """``model`` with exactly these parameters: none missing, none left over."""
    for name, parameter in model.named_parameters():
        assert parameters[name].shape == parameter.shape, name
        parameter.data.copy_(parameters.pop(name))
    assert not parameters, f"left over: {list(parameters)}"
    return model.eval()


def gpt_parameters(theirs: nn.Module) -> dict[str, Tensor]:
    """Their parameters under our names: their matrices stand on their side, and
    queries, keys, values are one."""
    parts = {}
    for name, parameter in theirs.named_parameters():
        parameter = parameter.T if parameter.dim() == 2 and ".h." in name else parameter
        if "c_attn" in name:
            chunks = zip(("query", "key", "value"), parameter.chunk(3), strict=True)
            parts |= {
                name.replace("c_attn", f"{part}_projection"): chunk
                for part, chunk in chunks
            }
        else:
            parts[name] = parameter
    layer, kind = r"transformer\.h\.(\d+)\.", r"\.(weight|bias)"
    return renamed(
        parts,
        {
            r"transformer\.wte\.weight": "embedding.weight",
            r"transformer\.wpe\.weight": "positions.table",
            rf"{layer}ln_1{kind}": (
                r"layers.layers.\1.self_attention_residual.layer_norm.\2"
            ),
            rf"{layer}ln_2{kind}": (
                r"layers.layers.\1.feed_forward_residual.layer_norm.\2"
            ),
            rf"{layer}attn\.(\w+_projection){kind}": (
                r"layers.layers.\1.self_attention.\2.\3"
            ),
            rf"{layer}attn\.c_proj{kind}": (
                r"layers.layers.\1.self_attention.output_projection.\2"
            ),
            rf"{layer}mlp\.c_fc{kind}": r"layers.layers.\1.feed_forward.expand.\2",
            rf"{layer}mlp\.c_proj{kind}": r"layers.layers.\1.feed_forward.contract.\2",
            rf"transformer\.ln_f{kind}": r"layers.final_norm.\1",
        },
    )


def bert_parameters(theirs: nn.Module) -> dict[str, Tensor]:
    """Their parameters under the names of our ``BERT``."""
    layer, kind = r"encoder\.layer\.(\d+)\.", r"\.(weight|bias)"
    return renamed(
        dict(theirs.named_parameters()),
        {
            r"embeddings\.word_embeddings\.weight": "embedding.weight",
            r"embeddings\.position_embeddings\.weight": "positions.table",
            r"embeddings\.token_type_embeddings\.weight": "segments.weight",
            rf"embeddings\.LayerNorm{kind}": r"embedding_norm.\1",
            rf"{layer}attention\.self\.(\w+){kind}": (
                r"encoder.layers.\1.self_attention.\2_projection.\3"
            ),
            rf"{layer}attention\.output\.dense{kind}": (
                r"encoder.layers.\1.self_attention.output_projection.\2"
            ),
            rf"{layer}attention\.output\.LayerNorm{kind}": (
                r"encoder.layers.\1.self_attention_residual.layer_norm.\2"
            ),
            rf"{layer}intermediate\.dense{kind}": (
                r"encoder.layers.\1.feed_forward.expand.\2"
            ),
            rf"{layer}output\.dense{kind}": (
                r"encoder.layers.\1.feed_forward.contract.\2"
            ),
            rf"{layer}output\.LayerNorm{kind}": (
                r"encoder.layers.\1.feed_forward_residual.layer_norm.\2"
            ),
            rf"pooler\.dense{kind}": r"pooler.\1",
        },
    )


def t5_parameters(theirs: nn.Module, d_model: int) -> dict[str, Tensor]:
    """Their parameters under our names; their embedding divided by the root of d_model,
    which ours multiplies by."""
    renames = {"q": "query", "k": "key", "v": "value", "o": "output"}
    places = {"SelfAttention": "self_attention", "EncDecAttention": "cross_attention"}
    found = {"embedding.weight": theirs.shared.weight.detach() / math.sqrt(d_model)}
    for stack in ("encoder", "decoder"):
        found[f"{stack}.final_norm.weight"] = getattr(
            theirs, stack
        ).final_layer_norm.weight.detach()
        for number, block in enumerate(getattr(theirs, stack).block):
            for part in block.layer:
                place = next(
                    (ours for name, ours in places.items() if hasattr(part, name)),
                    "feed_forward",
                )
                ours = f"{stack}.layers.{number}.{place}"
                found[f"{ours}_residual.layer_norm.weight"] = (
                    part.layer_norm.weight.detach()
                )
                inner = dict(next(iter(part.children())).named_parameters())
                if (
                    bias := inner.pop("relative_attention_bias.weight", None)
                    is not None
                ):
                    found[f"{ours}.position_bias.table"] = (
                        part.SelfAttention.relative_attention_bias.weight.detach()
                    )
                for name, parameter in inner.items():
                    short = name.removesuffix(".weight")
                    new = {"wi": "expand", "wo": "contract"}.get(
                        short
                    ) or f"{renames[short]}_projection"
                    found[f"{ours}.{new}.weight"] = parameter.detach()
                assert bias == (number == 0 and place == "self_attention")
    return found


def vit_parameters(theirs: nn.Module) -> dict[str, Tensor]:
    """Their parameters under our names; their convolution over patches is a matrix."""
    layer, kind = r"vit\.layers\.(\d+)\.", r"\.(weight|bias)"
    found = renamed(
        dict(theirs.named_parameters()),
        {
            r"vit\.embeddings\.cls_token": "class_token",
            r"vit\.embeddings\.position_embeddings": "positions.table",
            rf"vit\.embeddings\.patch_embeddings\.projection{kind}": r"patches.\1",
            rf"{layer}attention\.q_proj{kind}": (
                r"encoder.layers.\1.self_attention.query_projection.\2"
            ),
            rf"{layer}attention\.k_proj{kind}": (
                r"encoder.layers.\1.self_attention.key_projection.\2"
            ),
            rf"{layer}attention\.v_proj{kind}": (
                r"encoder.layers.\1.self_attention.value_projection.\2"
            ),
            rf"{layer}attention\.o_proj{kind}": (
                r"encoder.layers.\1.self_attention.output_projection.\2"
            ),
            rf"{layer}layernorm_before{kind}": (
                r"encoder.layers.\1.self_attention_residual.layer_norm.\2"
            ),
            rf"{layer}layernorm_after{kind}": (
                r"encoder.layers.\1.feed_forward_residual.layer_norm.\2"
            ),
            rf"{layer}mlp\.fc1{kind}": r"encoder.layers.\1.feed_forward.expand.\2",
            rf"{layer}mlp\.fc2{kind}": r"encoder.layers.\1.feed_forward.contract.\2",
            rf"vit\.layernorm{kind}": r"encoder.final_norm.\1",
            rf"classifier{kind}": r"classifier.\1",
        },
    )
    found["patches.weight"] = found["patches.weight"].flatten(1)
    found["positions.table"] = found["positions.table"].squeeze(0)
    return found


def bert_config(**changes: object) -> BertConfig:
    """A small BERT of theirs, of the sizes of ``BERT_CONFIG``."""
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 32,
    }
    return BertConfig(vocab_size=20, **sizes, max_position_embeddings=12, **changes)


@torch.no_grad()
def test_gpt_is_gpt2_of_transformers() -> None:
    """Fails with the exact GELU, without a bias, with scaled embeddings, and without
    the causal mask."""
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_inner": 32, "n_positions": 12}
    theirs = randomized(
        GPT2LMHeadModel(
            GPT2Config(vocab_size=20, bos_token_id=1, eos_token_id=2, **sizes)
        )
    )
    ours = load(GPT(GPT_CONFIG), gpt_parameters(theirs))
    tokens = torch.randint(20, (3, 12))
    assert_close(ours(tokens), theirs(tokens).logits, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_bert_is_bert_of_transformers() -> None:
    """Fails without the norm of the embeddings, the segments, the pooler's tanh, or the
    mask on padding."""
    theirs = randomized(BertModel(bert_config()))
    ours = load(BERT(BERT_CONFIG), bert_parameters(theirs))
    tokens, segments = torch.randint(1, 20, (3, 12)), torch.randint(2, (3, 12))
    tokens[0, 7:] = 0
    wanted = theirs(
        tokens, attention_mask=(tokens != 0).long(), token_type_ids=segments
    )
    states, pooled = ours(tokens, segments)
    assert_close(states, wanted.last_hidden_state, atol=1e-5, rtol=1e-5)
    assert_close(pooled, wanted.pooler_output, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_masked_word_predictor_is_that_of_transformers() -> None:
    """Fails without the head's GELU, norm or bias; the count differs by the pooler,
    which theirs leaves out."""
    theirs = randomized(BertForMaskedLM(bert_config()))
    bert = BERT(BERT_CONFIG)
    pooler = {
        f"pooler.{name}": parameter.detach()
        for name, parameter in bert.pooler.named_parameters()
    }
    parts = {
        f"bert.{name}": parameter
        for name, parameter in (bert_parameters(theirs.bert) | pooler).items()
    }
    parts |= renamed(
        dict(theirs.cls.predictions.named_parameters()),
        {
            r"(?:decoder\.)?bias": "bias",
            r"transform\.dense\.(weight|bias)": r"transform.\1",
            r"transform\.LayerNorm\.(weight|bias)": r"layer_norm.\1",
            r"decoder\.weight": "bert.embedding.weight",
        },
    )
    ours = load(MaskedWordPredictor(bert), parts)
    tokens, where = torch.randint(1, 20, (3, 12)), torch.rand(3, 12) < 0.3
    assert_close(
        ours(tokens, where), theirs(tokens).logits[where], atol=1e-5, rtol=1e-5
    )
    assert count_parameters(ours) - count_parameters(bert.pooler) == count_parameters(
        theirs
    )


@torch.no_grad()
def test_t5_is_t5_of_transformers() -> None:
    """Fails with scores divided by the root of d_k, a bias per layer, a LayerNorm, or
    buckets that differ."""
    sizes = {"d_model": 20, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    theirs = randomized(T5ForConditionalGeneration(T5Config(vocab_size=20, **sizes)))
    ours = load(T5(T5_CONFIG), t5_parameters(theirs, 20))
    source, target = torch.randint(1, 20, (3, 30)), torch.randint(1, 20, (3, 25))
    source[0, 20:] = 0
    wanted = theirs(
        source, attention_mask=(source != 0).long(), decoder_input_ids=target
    ).logits
    assert_close(ours(source, target), wanted, atol=2e-5, rtol=1e-5)


@torch.no_grad()
def test_vit_is_vit_of_transformers() -> None:
    """Fails with patches in another order, without the class token, and with the wrong
    position for it."""
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 32,
    }
    theirs = ViTConfig(
        **sizes, image_size=(8, 12), patch_size=4, num_channels=2, num_labels=5
    )
    theirs = randomized(ViTForImageClassification(theirs))
    ours = load(ViT(VIT_CONFIG, patch_size=4, channels=2), vit_parameters(theirs))
    images = torch.randn(3, 2, 8, 12)
    assert_close(ours(images), theirs(images).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", REFERENCES)
def test_full_size_has_as_many_parameters(name: str) -> None:
    """Fails when a bias, a norm, a pooler or a table is missing or too many."""
    with torch.device("meta"):
        theirs = REFERENCES[name]()
    ours = full_size(name)
    assert next(ours.parameters()).is_meta
    assert (
        count_parameters(ours) == count_parameters(theirs) == FULL_SIZE[name].parameters
    )


@given(length=st.integers(2, 12), data=st.data())
def test_gpt_sees_no_future_and_bert_does(length: int, data: st.DataObject) -> None:
    """Fails when the masks of the two are exchanged."""
    at = data.draw(st.integers(1, length - 1))
    tokens = torch.randint(4, 20, (1, length))
    gpt, bert = randomized(GPT(GPT_CONFIG)), randomized(BERT(BERT_CONFIG))
    assert_causal(lambda _, target: gpt(target), [4], tokens[0].tolist(), at)
    changed = tokens.clone()
    changed[0, at] = 4 + (tokens[0, at] - 3) % 16
    assert (bert(changed)[0] - bert(tokens)[0])[0, 0].abs().max() > 1e-4


@given(pairs=pairs, extra=st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_t5_does_not_see_padding(pairs: list, extra: tuple[int, int]) -> None:
    """Fails when the mask is added in the wrong place, and when a bias is."""
    assert_padding_invariant(T5(T5_CONFIG).eval(), pairs, extra)


@given(target=st.lists(st.integers(3, 19), min_size=2, max_size=6), data=st.data())
def test_t5_sees_no_future(target: list[int], data: st.DataObject) -> None:
    """Fails without the causal mask in the decoder."""
    assert_causal(
        randomized(T5(T5_CONFIG)),
        [5, 6],
        target,
        data.draw(st.integers(0, len(target) - 1)),
    )


@torch.no_grad()
def test_t5_decodes_with_a_cache_as_without() -> None:
    """Fails when the bias of the newest word is that of the first position."""
    model, source, target = (
        randomized(T5(T5_CONFIG)),
        torch.randint(4, 20, (3, 9)),
        torch.randint(4, 20, (3, 25)),
    )
    decoder = CachedDecoder(model, source)
    logits = torch.cat([decoder.step(target[:, i : i + 1]) for i in range(25)], dim=1)
    assert_close(logits, model(source, target), atol=1e-5, rtol=1e-4)


def test_t5_records_its_attention() -> None:
    """Fails when the attention forgets its weights; a row that may attend to nothing is
    zero, and no NaN."""
    model = T5(T5_CONFIG).eval()
    with record_attention(model) as weights:
        model(torch.tensor([[5, 6, 0], [0, 0, 0]]), torch.tensor([[1, 7], [1, 8]]))
    assert len(weights) == 6
    assert_close(
        weights["encoder.layers.0.self_attention"][0].sum(-1), torch.ones(4, 3)
    )
    assert torch.equal(
        weights["decoder.layers.1.cross_attention"][1], torch.zeros(4, 2, 3)
    )


def test_relative_attention_is_the_formula() -> None:
    """Fails when the scores are scaled or the bias is left out; rows without keys give
    zero."""
    bias = randomized(RelativePositionBias(4, both_ways=True))
    attention, x = RelativeAttention(T5_CONFIG, bias), torch.randn(2, 6, 20)
    mask = random_mask(2, 6, 6)
    output, weights = attention(x, x, x, mask, need_weights=True)
    queries, keys = (
        p(x).unflatten(-1, (4, 4))
        for p in (attention.query_projection, attention.key_projection)
    )
    scores = torch.einsum("bqhd,bkhd->bhqk", queries, keys) + bias(6, 6)
    wanted = scores.masked_fill(~mask.unsqueeze(1), -math.inf).softmax(-1).nan_to_num()
    assert_close(weights, wanted)
    assert torch.equal(output[0, 0], torch.zeros(20))
    assert_close(attention(x, x, x, mask)[0], output)


@pytest.mark.parametrize("both_ways", [True, False])
def test_buckets_are_those_of_transformers(both_ways: bool) -> None:
    """Fails when a border between two buckets moves by one."""
    distance = torch.arange(-300, 301)
    theirs = T5Attention._relative_position_bucket(distance, both_ways, 32, 128)
    assert torch.equal(distance_bucket(distance, both_ways), theirs)


@given(n=st.integers(1, 40), shift=st.integers(0, 20))
def test_relative_bias_depends_on_the_distance_alone(n: int, shift: int) -> None:
    """Fails when a position itself comes in, and when the queries do not stand at the
    end of the keys."""
    bias = randomized(RelativePositionBias(2, both_ways=False))
    wide = bias(n + shift, n + shift)
    assert torch.equal(wide[:, shift:, shift:], bias(n, n))
    assert torch.equal(wide[:, -1:], bias(1, n + shift))


def test_vit_without_positions_cannot_tell_the_order_of_patches() -> None:
    """Fails when anything but the table of positions tells where a patch stands."""
    model = randomized(ViT(VIT_CONFIG, patch_size=4, channels=2))
    images = torch.randn(2, 2, 8, 12)
    turned = images.roll(4, dims=-1)  # by one patch: the same patches in other places
    assert (model(images) - model(turned)).abs().max() > 1e-3
    model.positions.table.data.zero_()
    assert_close(model(images), model(turned), atol=1e-5, rtol=1e-5)


def test_patches_are_squares_in_reading_order() -> None:
    """Fails for strips, for columns first, and for channels last."""
    image = torch.arange(2 * 4 * 6.0).reshape(1, 2, 4, 6)
    patches = cut_into_patches(image, 2)
    assert patches.shape == (1, 6, 8)
    for number in range(6):
        row, column = 2 * (number // 3), 2 * (number % 3)
        assert torch.equal(
            patches[0, number],
            image[0, :, row : row + 2, column : column + 2].flatten(),
        )


def test_masking_is_80_10_10() -> None:
    """Fails when special tokens are chosen, a share is off, or a word that is not
    chosen changes."""
    tokens = torch.randint(0, 50, (400, 500))
    corrupted, chosen = mask_words(tokens, mask_id=50)
    assert not chosen[tokens < 4].any() and torch.equal(
        corrupted[~chosen], tokens[~chosen]
    )
    assert abs(chosen[tokens >= 4].float().mean() - 0.15) < 0.005
    masked, kept = (corrupted == 50)[chosen], (corrupted == tokens)[chosen]
    assert abs(masked.float().mean() - 0.8) < 0.01
    assert (
        abs(kept.float().mean() - 0.1 - 0.1 / 46) < 0.01
    )  # a random word is the right one now and then
    assert corrupted[chosen].min() >= 4 and set(corrupted[chosen].tolist()) == set(
        range(4, 51)
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: GPT(GPT_CONFIG)(torch.tensor([[20]])),
            IndexError,
            "index out of range",
        ),
        (
            lambda: GPT(GPT_CONFIG)(torch.ones(1, 13, dtype=torch.long)),
            ValueError,
            "13 tokens.*max_length 12",
        ),
        (
            lambda: BERT(BERT_CONFIG)(torch.tensor([[1]]), torch.tensor([[2]])),
            IndexError,
            "index out of range",
        ),
        (
            lambda: ViT(VIT_CONFIG, 4, 2)(torch.zeros(1, 2, 8, 10)),
            ValueError,
            r"\(8, 10\).*whole number of.*4 x 4",
        ),
        (
            lambda: ViT(VIT_CONFIG, 4, 2)(torch.zeros(1, 2, 8, 8)),
            ValueError,
            "4 patches, expected 6",
        ),
        (
            lambda: mask_words(torch.tensor([[7]]), mask_id=4),
            ValueError,
            "mask_id is 4.*above",
        ),
        (
            lambda: full_size("GPT-5"),
            ValueError,
            "'GPT-5', expected one of 'GPT-2 small', ",
        ),
    ],
)
def test_bad_input_is_named(call: object, error: type[Exception], message: str) -> None:
    """Fails, for each row of the table, when its check is taken out."""
    with pytest.raises(error, match=message):
        call()
