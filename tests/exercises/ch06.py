"""Solutions of the exercises of chapter 6, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="06-c96414f5",
        wrong={
            "counts one more matrix, not two": """
                c = config
                return parameters_by_formula(c) + c.vocabulary_size * c.d_model
            """,
            "counts three more": """
                c = config
                return parameters_by_formula(c) + 3 * c.vocabulary_size * c.d_model
            """,
            "takes the width of the base model": """
                return parameters_by_formula(config) + 2 * config.vocabulary_size * 512
            """,
            "takes the paper's vocabulary": """
                return parameters_by_formula(config) + 2 * 37_000 * config.d_model
            """,
            "triples the whole": """
                return 3 * parameters_by_formula(config)
            """,
            "gives the output projection a bias": """
                V, d = config.vocabulary_size, config.d_model
                return parameters_by_formula(config) + 2 * V * d + V
            """,
            "a second table of positions besides": """
                V, d = config.vocabulary_size, config.d_model
                more = config.max_length * d if config.positions == "learned" else 0
                return parameters_by_formula(config) + 2 * V * d + more
            """,
            "adds one matrix for each layer": """
                V, d = config.vocabulary_size, config.d_model
                return parameters_by_formula(config) + (config.num_layers + 1) * V * d
            """,
            "adds what is not learned": """
                c = config
                sinusoids = (c.positions == "sinusoidal") * c.max_length * c.d_model
                more = 2 * c.vocabulary_size * c.d_model + sinusoids
                return parameters_by_formula(c) + more
            """,
            "takes the width of all heads": """
                c = config
                width = c.num_heads * (c.d_k or c.d_model // c.num_heads)
                return parameters_by_formula(c) + 2 * c.vocabulary_size * width
            """,
            "leaves the row of padding out": """
                c = config
                rows = c.vocabulary_size - 1
                return parameters_by_formula(c) + 2 * rows * c.d_model
            """,
        },
        right={
            "asks PyTorch": """
                model = on_meta(config)
                return count_parameters(model) + 2 * model.embedding.weight.numel()
            """,
            "without the shared one, and three": """
                V, d = config.vocabulary_size, config.d_model
                stacks = parameters_by_formula(replace(config, vocabulary_size=1)) - d
                return stacks + 3 * V * d
            """,
        },
    ),
    Exercise(
        cell="06-05e868df",
        wrong={
            "forgets the causal mask": """
                mask = padding_mask(tokens, model.config.pad_id)
                return model.embedding.logits(model.encoder(model.embed(tokens), mask))
            """,
            "forgets the padding": """
                mask = causal_mask(tokens.size(1))
                return model.embedding.logits(model.encoder(model.embed(tokens), mask))
            """,
            "takes padding to be token 0": """
                mask = causal_mask(tokens.size(1)) & padding_mask(tokens)
                return model.embedding.logits(model.encoder(model.embed(tokens), mask))
            """,
            "either mask is enough": """
                words = padding_mask(tokens, model.config.pad_id)
                mask = causal_mask(tokens.size(1)) | words
                return model.embedding.logits(model.encoder(model.embed(tokens), mask))
            """,
            "does not see itself": """
                n = tokens.size(1)
                words = padding_mask(tokens, model.config.pad_id)
                mask = torch.ones(n, n).tril(-1).bool() & words
                return model.embedding.logits(model.encoder(model.embed(tokens), mask))
            """,
            "PyTorch's inverted masks": """
                words = padding_mask(tokens, model.config.pad_id)
                mask = ~(causal_mask(tokens.size(1)) & words)
                return model.embedding.logits(model.encoder(model.embed(tokens), mask))
            """,
            "padding along the queries": """
                words = padding_mask(tokens, model.config.pad_id).transpose(1, 2)
                mask = causal_mask(tokens.size(1)) & words
                return model.embedding.logits(model.encoder(model.embed(tokens), mask))
            """,
            "returns probabilities": """
                words = padding_mask(tokens, model.config.pad_id)
                mask = causal_mask(tokens.size(1)) & words
                x = model.encoder(model.embed(tokens), mask)
                return model.embedding.logits(x).softmax(-1)
            """,
            "no positions": """
                words = padding_mask(tokens, model.config.pad_id)
                mask = causal_mask(tokens.size(1)) & words
                x = model.encoder(model.embedding(tokens), mask)
                return model.embedding.logits(x)
            """,
            "uses the decoder": """
                return model.decode(tokens, model.encode(tokens), tokens)
            """,
            "trims the padding away": """
                words = (tokens != model.config.pad_id).any(0)
                tokens = tokens[:, : int(words.nonzero().max())]
                mask = causal_mask(tokens.size(1))
                return model.embedding.logits(model.encoder(model.embed(tokens), mask))
            """,
            "puts padding to zero in place": """
                words = tokens != model.config.pad_id
                tokens *= words
                mask = causal_mask(tokens.size(1)) & words.unsqueeze(1)
                return model.embedding.logits(model.encoder(model.embed(tokens), mask))
            """,
            "looks back one token only": """
                n = tokens.size(1)
                words = padding_mask(tokens, model.config.pad_id)
                mask = torch.ones(n, n).tril().triu(-1).bool() & words
                return model.embedding.logits(model.encoder(model.embed(tokens), mask))
            """,
            "shifts the tokens once more": """
                words = padding_mask(tokens, model.config.pad_id)
                mask = causal_mask(tokens.size(1)) & words
                shifted = torch.cat([tokens[:, :1], tokens[:, :-1]], 1)
                states = model.encoder(model.embed(shifted), mask)
                return model.embedding.logits(states)
            """,
            "one more layer norm": """
                words = padding_mask(tokens, model.config.pad_id)
                mask = causal_mask(tokens.size(1)) & words
                x = model.encoder(model.embed(tokens), mask)
                x = torch.nn.functional.layer_norm(x, x.shape[-1:])
                return model.embedding.logits(x)
            """,
            "the first logits for all": """
                words = padding_mask(tokens, model.config.pad_id)
                mask = causal_mask(tokens.size(1)) & words
                logits = model.embedding.logits(
                    model.encoder(model.embed(tokens), mask)
                )
                return logits[:, :1].expand_as(logits)
            """,
            "shifts the logits, too": """
                words = padding_mask(tokens, model.config.pad_id)
                mask = causal_mask(tokens.size(1)) & words
                x = model.encoder(model.embed(tokens), mask)
                logits = model.embedding.logits(x)
                return torch.cat([logits[:, :1], logits[:, :-1]], 1)
            """,
            "the causal mask in the first layer only": """
                words = padding_mask(tokens, model.config.pad_id)
                mask = causal_mask(tokens.size(1)) & words
                x = model.embed(tokens)
                for i, layer in enumerate(model.encoder.layers):
                    x = layer(x, words if i else mask)
                return model.embedding.logits(model.encoder.final_norm(x))
            """,
            "the padding of the first sentence for all": """
                words = padding_mask(tokens[:1], model.config.pad_id)
                mask = causal_mask(tokens.size(1)) & words
                return model.embedding.logits(model.encoder(model.embed(tokens), mask))
            """,
        },
        right={
            "puts zeros where padding stands": """
                words = padding_mask(tokens, model.config.pad_id)
                mask = causal_mask(tokens.size(1)) & words
                x = model.embed(tokens) * words.transpose(1, 2)
                return model.embedding.logits(model.encoder(x, mask))
            """,
            "a comparison of positions": """
                n = torch.arange(tokens.size(1))
                words = (tokens != model.config.pad_id)[:, None, :]
                mask = (n[None, :] <= n[:, None]) & words
                states = model.encoder(model.embed(tokens), mask)
                return states @ model.embedding.weight.T
            """,
            "layer by layer": """
                n = tokens.size(1)
                words = padding_mask(tokens, model.config.pad_id).expand(-1, n, n)
                mask = torch.tril(words.int()).bool()
                x = model.embed(tokens)
                for layer in model.encoder.layers:
                    x = layer(x, mask)
                return model.embedding.logits(model.encoder.final_norm(x))
            """,
        },
    ),
]
