"""Our Transformer beside PyTorch's own: the same weights under two sets of names."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from annotated_transformer.attention import causal_mask, padding_mask
from annotated_transformer.transformer import Transformer

THEIR_NAMES = {
    "self_attention_residual.layer_norm": "norm1",
    "cross_attention_residual.layer_norm": "norm2",
    "feed_forward_residual.layer_norm": "norm3",
    "final_norm": "norm",
    "self_attention.": "self_attn.",
    "cross_attention.": "multihead_attn.",
    "output_projection": "out_proj",
    "query_projection.": "in_proj_",
    "key_projection.": "in_proj_",
    "value_projection.": "in_proj_",
    "feed_forward.expand": "linear1",
    "feed_forward.contract": "linear2",
}


def in_their_terms(
    ours: nn.Module, of: Callable[[Tensor], Tensor] = Tensor.detach
) -> dict[str, Tensor]:
    """What ``of`` takes from each parameter of our two stacks, by the names that
    ``nn.Transformer`` has for them.

    ``nn.MultiheadAttention`` keeps the projections of queries, keys and values in one
    tall matrix: three of our tensors, stacked in this order. It numbers the norms of a
    layer from bottom to top, and an encoder layer has only two.
    """
    tensors: dict[str, list[Tensor]] = {}
    for name, parameter in ours.named_parameters():
        for our_part, their_part in THEIR_NAMES.items():
            name = name.replace(our_part, their_part)
        if name.startswith("encoder"):
            name = name.replace("norm3", "norm2")
        if name.startswith(("encoder", "decoder")):
            tensors.setdefault(name, []).append(of(parameter))
    return {name: torch.cat(parts) for name, parts in tensors.items()}


def pytorch_twin(ours: Transformer) -> nn.Transformer:
    """An ``nn.Transformer`` of the same sizes, with a copy of the weights of our two
    stacks.

    Its biases of attention are zero where ours has none, and so is its dropout.
    With post-norm the norm at the end of each of its stacks, which the paper does not
    have, is taken away. Raises ValueError where a weight of ours has no counterpart, or
    one of theirs that is not zero.
    """
    c, weight = ours.config, ours.embedding.weight
    theirs = nn.Transformer(
        d_model=c.d_model,
        nhead=c.num_heads,
        num_encoder_layers=c.num_layers,
        num_decoder_layers=c.num_layers,
        dim_feedforward=c.d_ff,
        dropout=0.0,
        batch_first=True,
        norm_first=c.norm == "pre",
        device=weight.device,
        dtype=weight.dtype,
    )
    if c.norm == "post":
        theirs.encoder.norm = theirs.decoder.norm = None
    left, unknown = theirs.load_state_dict(in_their_terms(ours), strict=False)
    not_zero = [name for name in left if theirs.get_parameter(name).any()]
    if unknown or not_zero:
        raise ValueError(f"no counterpart for {unknown} of ours, {not_zero} of theirs")
    return theirs


def states_of_both(
    ours: Transformer, theirs: nn.Transformer, source: Tensor, target: Tensor
) -> tuple[Tensor, Tensor]:
    """The decoder states ``(batch, m, d_model)`` of our stacks and of theirs, for token
    ids ``(batch, n)`` and ``(batch, m)``.

    Both get the same embedded tokens and the same masks; in ``nn.Transformer`` True
    means that a position is hidden.
    """
    with torch.no_grad():
        x, y = (ours.embed(tokens) for tokens in (source, target))
    pad = ours.config.pad_id
    x_words, y_words = padding_mask(source, pad), padding_mask(target, pad)
    past = causal_mask(y.size(1), y.device)
    mine = ours.decoder(y, ours.encoder(x, x_words), past & y_words, x_words)
    other = theirs(
        x,
        y,
        tgt_mask=~past,
        src_key_padding_mask=~x_words[:, 0],
        tgt_key_padding_mask=~y_words[:, 0],
        memory_key_padding_mask=~x_words[:, 0],
    )
    return mine, other
