"""The model of a benchmark in CTranslate2, a library that is made for fast decoding
(``pip install -r benchmarks/requirements.txt``)."""

import tempfile
from collections.abc import Callable

import ctranslate2
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
from ctranslate2.specs.common_spec import Activation, LinearSpec
from torch import Tensor, cat, nn

from annotated_transformer.multi_head import MultiHeadAttention
from annotated_transformer.subwords import BOS_ID, EOS_ID, UNK_ID
from annotated_transformer.transformer import Transformer


def numbers(weight: Tensor) -> object:
    return weight.detach().numpy()


def set_linear(spec: LinearSpec, *layers: nn.Linear) -> None:
    """One product in place of ``layers``, side by side."""
    spec.weight = numbers(cat([layer.weight for layer in layers]))
    if layers[0].bias is not None:
        spec.bias = numbers(cat([layer.bias for layer in layers]))


def set_attention(
    spec: MultiHeadAttentionSpec, ours: MultiHeadAttention, norm: nn.LayerNorm
) -> None:
    """Self-attention has one product for Q, K and V, cross-attention one for Q and one
    for K and V."""
    query, key, value, output = ours.children()
    groups = [[query, key, value]] if len(spec.linear) == 2 else [[query], [key, value]]
    for linear, layers in zip(spec.linear, [*groups, [output]], strict=True):
        set_linear(linear, *layers)
    spec.layer_norm.gamma, spec.layer_norm.beta = map(numbers, norm.parameters())


def spec_of(ours: Transformer) -> TransformerSpec:
    """The weights of ``ours``, which is post-norm with sinusoids, as CTranslate2 wants
    them."""
    c = ours.config
    layers = (c.num_layers, c.num_layers)
    spec = TransformerSpec.from_config(
        layers, c.num_heads, pre_norm=False, activation=Activation.RELU
    )
    embedding = numbers(ours.embedding.weight)
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = embedding
    for side, stack in ((spec.encoder, ours.encoder), (spec.decoder, ours.decoder)):
        side.position_encodings.encodings = numbers(ours.positions.table)
        for theirs, own in zip(side.layer, stack.layers, strict=True):
            norm = own.self_attention_residual.layer_norm
            set_attention(theirs.self_attention, own.self_attention, norm)
            if hasattr(own, "cross_attention"):
                norm = own.cross_attention_residual.layer_norm
                set_attention(theirs.attention, own.cross_attention, norm)
            set_linear(theirs.ffn.linear_0, own.feed_forward.expand)
            set_linear(theirs.ffn.linear_1, own.feed_forward.contract)
            norm = own.feed_forward_residual.layer_norm
            theirs.ffn.layer_norm.gamma = numbers(norm.weight)
            theirs.ffn.layer_norm.beta = numbers(norm.bias)
    return spec


def translator_of(ours: Transformer, threads: int) -> Callable[..., list[list[int]]]:
    """A function of sources ``(batch, n)``, the number of words to write, and the beam
    size: the words of the best hypotheses, in 32 bits."""
    names = [str(i) for i in range(ours.config.vocabulary_size)]
    spec = spec_of(ours)
    special = {"bos": BOS_ID, "eos": EOS_ID, "unk": UNK_ID, "decoder_start": BOS_ID}
    for name, number in special.items():
        setattr(spec.config, f"{name}_token", names[number])
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.validate()
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        translator = ctranslate2.Translator(
            folder,
            compute_type="float32",
            inter_threads=threads,  # each takes a part of the batch: far faster here
            intra_threads=1,  # than several threads for one product
        )

    def translate(source: Tensor, words: int, beam_size: int) -> list[list[int]]:
        found = translator.translate_batch(
            [[names[i] for i in row] for row in source.tolist()],
            beam_size=beam_size,
            length_penalty=0.6,
            max_decoding_length=words,
            max_input_length=0,
            max_batch_size=-(-len(source) // threads),
        )
        return [list(map(int, result.hypotheses[0])) for result in found]

    return translate
