"""Solutions of the exercises of chapter 11, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="11-96312e09",
        wrong={
            "clips the gradients, too": """
                optimizer, losses = transformer_optimizer(model), []
                for step in range(1, steps + 1):
                    rate = transformer_learning_rate(step, model.d_model, 20, 0.1)
                    optimizer.param_groups[0]["lr"] = rate
                    loss_sum, tokens = batch_loss(model, batch, smoothing=0.0)
                    optimizer.zero_grad()
                    (loss_sum / tokens).backward()
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    losses.append((loss_sum / tokens).item())
                return losses
            """,
            "measures the loss after the step": """
                optimizer, losses = transformer_optimizer(model), []
                for step in range(1, steps + 1):
                    rate = transformer_learning_rate(step, model.d_model, 20, 0.1)
                    optimizer.param_groups[0]["lr"] = rate
                    loss_sum, tokens = batch_loss(model, batch, smoothing=0.0)
                    optimizer.zero_grad()
                    (loss_sum / tokens).backward()
                    optimizer.step()
                    with torch.no_grad():
                        loss_sum, tokens = batch_loss(model, batch, smoothing=0.0)
                    losses.append((loss_sum / tokens).item())
                return losses
            """,
            "sets the rate once, at its peak": """
                optimizer, losses = transformer_optimizer(model), []
                rate = transformer_learning_rate(20, model.d_model, 20, factor=0.1)
                optimizer.param_groups[0]["lr"] = rate
                for step in range(1, steps + 1):
                    loss_sum, tokens = batch_loss(model, batch, smoothing=0.0)
                    optimizer.zero_grad()
                    (loss_sum / tokens).backward()
                    optimizer.step()
                    losses.append((loss_sum / tokens).item())
                return losses
            """,
            "lets the decoder read the word that it must say": """
                optimizer, losses = transformer_optimizer(model), []
                for step in range(1, steps + 1):
                    rate = transformer_learning_rate(step, model.d_model, 20, 0.1)
                    optimizer.param_groups[0]["lr"] = rate
                    logits = model(batch.source, batch.target_output)
                    loss_sum, tokens = label_smoothed_cross_entropy(
                        logits, batch.target_output, 0.0
                    )
                    optimizer.zero_grad()
                    (loss_sum / tokens).backward()
                    optimizer.step()
                    losses.append((loss_sum / tokens).item())
                return losses
            """,
            "never takes the gradients back to zero": """
                optimizer, losses = transformer_optimizer(model), []
                for step in range(1, steps + 1):
                    rate = transformer_learning_rate(step, model.d_model, 20, 0.1)
                    optimizer.param_groups[0]["lr"] = rate
                    loss_sum, tokens = batch_loss(model, batch, smoothing=0.0)
                    (loss_sum / tokens).backward()
                    optimizer.step()
                    losses.append((loss_sum / tokens).item())
                return losses
            """,
            "counts steps from zero": """
                optimizer, losses = transformer_optimizer(model), []
                for step in range(steps):
                    rate = transformer_learning_rate(
                        max(step, 1), model.d_model, 20, 0.1
                    )
                    optimizer.param_groups[0]["lr"] = rate
                    loss_sum, tokens = batch_loss(model, batch, smoothing=0.0)
                    optimizer.zero_grad()
                    (loss_sum / tokens).backward()
                    optimizer.step()
                    losses.append((loss_sum / tokens).item())
                return losses
            """,
            "leaves the learning rate at zero": """
                optimizer, losses = transformer_optimizer(model), []
                for step in range(1, steps + 1):
                    loss_sum, tokens = batch_loss(model, batch, smoothing=0.0)
                    optimizer.zero_grad()
                    (loss_sum / tokens).backward()
                    optimizer.step()
                    losses.append((loss_sum / tokens).item())
                return losses
            """,
            "trains with label smoothing": """
                optimizer, losses = transformer_optimizer(model), []
                for step in range(1, steps + 1):
                    rate = transformer_learning_rate(step, model.d_model, 20, 0.1)
                    optimizer.param_groups[0]["lr"] = rate
                    loss_sum, tokens = batch_loss(model, batch, smoothing=0.1)
                    optimizer.zero_grad()
                    (loss_sum / tokens).backward()
                    optimizer.step()
                    losses.append((loss_sum / tokens).item())
                return losses
            """,
            "does not divide by the tokens": """
                optimizer, losses = transformer_optimizer(model), []
                for step in range(1, steps + 1):
                    rate = transformer_learning_rate(step, model.d_model, 20, 0.1)
                    optimizer.param_groups[0]["lr"] = rate
                    loss_sum, tokens = batch_loss(model, batch, smoothing=0.0)
                    optimizer.zero_grad()
                    loss_sum.backward()
                    optimizer.step()
                    losses.append(loss_sum.item())
                return losses
            """,
            "Adam with PyTorch's own betas": """
                optimizer, losses = torch.optim.Adam(model.parameters()), []
                for step in range(1, steps + 1):
                    rate = transformer_learning_rate(step, model.d_model, 20, 0.1)
                    optimizer.param_groups[0]["lr"] = rate
                    loss_sum, tokens = batch_loss(model, batch, smoothing=0.0)
                    optimizer.zero_grad()
                    (loss_sum / tokens).backward()
                    optimizer.step()
                    losses.append((loss_sum / tokens).item())
                return losses
            """,
            "forgets that the width sets the rate": """
                optimizer, losses = transformer_optimizer(model), []
                for step in range(1, steps + 1):
                    rate = transformer_learning_rate(step, 512, 20, 0.1)
                    optimizer.param_groups[0]["lr"] = rate
                    loss_sum, tokens = batch_loss(model, batch, smoothing=0.0)
                    optimizer.zero_grad()
                    (loss_sum / tokens).backward()
                    optimizer.step()
                    losses.append((loss_sum / tokens).item())
                return losses
            """,
            "calls the package's own loop": """
                from itertools import repeat
                return train(model, repeat(batch), steps, 20, 0.1, smoothing=0.0)
            """,
            "a new optimizer at every step": """
                losses = []
                for step in range(1, steps + 1):
                    optimizer = transformer_optimizer(model)
                    rate = transformer_learning_rate(step, model.d_model, 20, 0.1)
                    optimizer.param_groups[0]["lr"] = rate
                    loss_sum, tokens = batch_loss(model, batch, smoothing=0.0)
                    optimizer.zero_grad()
                    (loss_sum / tokens).backward()
                    optimizer.step()
                    losses.append((loss_sum / tokens).item())
                return losses
            """,
            "always sixty steps": """
                optimizer, losses = transformer_optimizer(model), []
                for step in range(1, 61):
                    rate = transformer_learning_rate(step, model.d_model, 20, 0.1)
                    optimizer.param_groups[0]["lr"] = rate
                    loss_sum, tokens = batch_loss(model, batch, smoothing=0.0)
                    optimizer.zero_grad()
                    (loss_sum / tokens).backward()
                    optimizer.step()
                    losses.append((loss_sum / tokens).item())
                return losses
            """,
        },
        right={
            "with PyTorch's own loss and autograd.grad": """
                optimizer, losses = transformer_optimizer(model), []
                weights = list(model.parameters())
                model.train()
                for step in range(1, steps + 1):
                    for group in optimizer.param_groups:
                        group["lr"] = transformer_learning_rate(
                            step, model.d_model, warmup_steps=20, factor=0.1
                        )
                    logits = model(batch.source, batch.target_input).flatten(0, 1)
                    loss = nn.functional.cross_entropy(
                        logits, batch.target_output.flatten(), ignore_index=0
                    )
                    slopes = torch.autograd.grad(loss, weights)
                    for weight, slope in zip(weights, slopes):
                        weight.grad = slope
                    optimizer.step()
                    losses.append(float(loss.detach()))
                return losses
            """,
        },
    ),
    Exercise(
        cell="11-93227b11",
        wrong={
            "leaves dropout on": """
                tokens = sum(part.tokens for part in parts)
                model.train()
                model.zero_grad()
                for part in parts:
                    loss_sum, _ = batch_loss(model, part, smoothing=0.1)
                    (loss_sum / tokens).backward()
            """,
            "moves the weights after each part": """
                tokens = sum(part.tokens for part in parts)
                model.zero_grad()
                for part in parts:
                    loss_sum, _ = batch_loss(model, part, smoothing=0.1)
                    (loss_sum / tokens).backward()
                    with torch.no_grad():
                        for weight in model.parameters():
                            weight -= 0.01 * weight.grad
            """,
            "the sum over all tokens, not their mean": """
                model.zero_grad()
                for part in parts:
                    loss_sum, _ = batch_loss(model, part, smoothing=0.1)
                    loss_sum.backward()
            """,
            "takes the mean of the means": """
                model.zero_grad()
                for part in parts:
                    loss_sum, tokens = batch_loss(model, part, smoothing=0.1)
                    (loss_sum / tokens / len(parts)).backward()
            """,
            "divides each part by its own tokens": """
                model.zero_grad()
                for part in parts:
                    loss_sum, tokens = batch_loss(model, part, smoothing=0.1)
                    (loss_sum / tokens).backward()
            """,
            "weighs the parts by their sentences": """
                model.zero_grad()
                sentences = sum(len(part.source) for part in parts)
                for part in parts:
                    loss_sum, tokens = batch_loss(model, part, smoothing=0.1)
                    share = len(part.source) / sentences
                    (share * loss_sum / tokens).backward()
            """,
            "counts padding among the tokens": """
                model.zero_grad()
                tokens = sum(part.target_output.numel() for part in parts)
                for part in parts:
                    loss_sum, _ = batch_loss(model, part, smoothing=0.1)
                    (loss_sum / tokens).backward()
            """,
            "divides by the tokens of the source": """
                model.zero_grad()
                tokens = sum(int((part.source != 0).sum()) for part in parts)
                for part in parts:
                    loss_sum, _ = batch_loss(model, part, smoothing=0.1)
                    (loss_sum / tokens).backward()
            """,
            "divides by the tokens that were read so far": """
                model.zero_grad()
                tokens = 0
                for part in parts:
                    tokens += part.tokens
                    loss_sum, _ = batch_loss(model, part, smoothing=0.1)
                    (loss_sum / tokens).backward()
            """,
            "keeps the gradients of the call before": """
                tokens = sum(part.tokens for part in parts)
                for part in parts:
                    loss_sum, _ = batch_loss(model, part, smoothing=0.1)
                    (loss_sum / tokens).backward()
            """,
            "keeps only the last part": """
                tokens = sum(part.tokens for part in parts)
                for part in parts:
                    model.zero_grad()
                    loss_sum, _ = batch_loss(model, part, smoothing=0.1)
                    (loss_sum / tokens).backward()
            """,
            "without label smoothing": """
                tokens = sum(part.tokens for part in parts)
                model.zero_grad()
                for part in parts:
                    loss_sum, _ = batch_loss(model, part, smoothing=0.0)
                    (loss_sum / tokens).backward()
            """,
            "runs each part twice, once to count": """
                model.zero_grad()
                tokens = sum(batch_loss(model, part, 0.1)[1] for part in parts)
                for part in reversed(parts):
                    loss_sum, _ = batch_loss(model, part, smoothing=0.1)
                    (loss_sum / tokens).backward()
            """,
        },
        right={
            "divides the gradients at the end": """
                for weight in model.parameters():
                    weight.grad = None
                count = 0
                for part in parts:
                    loss_sum, tokens = batch_loss(model, part, 0.1)
                    loss_sum.backward()
                    count += tokens
                for weight in model.parameters():
                    weight.grad /= count
            """,
        },
    ),
    Exercise(
        cell="11-e5a70f38",
        wrong={
            "holds the squared norm against the threshold": """
                gradients = [w.grad for w in parameters if w.grad is not None]
                square = sum((gradient**2).sum().item() for gradient in gradients)
                norm = math.sqrt(square)
                if square > threshold:
                    for gradient in gradients:
                        gradient *= threshold / norm
                return norm
            """,
            "puts new gradients beside the old ones": """
                weights = [w for w in parameters if w.grad is not None]
                norm = math.sqrt(sum((w.grad**2).sum().item() for w in weights))
                for weight in weights:
                    weight.grad = weight.grad * min(1, threshold / max(norm, 1e-12))
                return norm
            """,
            "shortens to half of the threshold": """
                gradients = [w.grad for w in parameters if w.grad is not None]
                norm = math.sqrt(sum((g**2).sum().item() for g in gradients))
                if norm > threshold:
                    for gradient in gradients:
                        gradient *= threshold / (2 * norm)
                return norm
            """,
            "clips each tensor by its own norm": """
                weights = [w for w in parameters if w.grad is not None]
                norm = math.sqrt(sum((w.grad**2).sum().item() for w in weights))
                for w in weights:
                    own = w.grad.norm().item()
                    if own > threshold:
                        w.grad *= threshold / own
                return norm
            """,
            "clips each number": """
                weights = [w for w in parameters if w.grad is not None]
                norm = math.sqrt(sum((w.grad**2).sum().item() for w in weights))
                for w in weights:
                    w.grad.clamp_(-threshold, threshold)
                return norm
            """,
            "lengthens short gradients, too": """
                weights = [w for w in parameters if w.grad is not None]
                norm = math.sqrt(sum((w.grad**2).sum().item() for w in weights))
                for w in weights:
                    w.grad *= threshold / max(norm, 1e-12)
                return norm
            """,
            "returns the norm after the clipping": """
                weights = [w for w in parameters if w.grad is not None]
                norm = math.sqrt(sum((w.grad**2).sum().item() for w in weights))
                for w in weights:
                    w.grad *= min(1.0, threshold / (norm + 1e-12))
                return min(norm, threshold)
            """,
            "by the largest number": """
                weights = [w for w in parameters if w.grad is not None]
                norm = max(w.grad.abs().max().item() for w in weights)
                if norm > threshold:
                    for w in weights:
                        w.grad *= threshold / norm
                return norm
            """,
            "forgets the root": """
                weights = [w for w in parameters if w.grad is not None]
                norm = sum((w.grad**2).sum().item() for w in weights)
                if norm > threshold:
                    for w in weights:
                        w.grad *= threshold / norm
                return norm
            """,
            "returns a tensor": """
                weights = [w for w in parameters if w.grad is not None]
                norm = torch.stack([w.grad.norm() for w in weights]).norm()
                if norm > threshold:
                    for w in weights:
                        w.grad *= threshold / norm
                return norm
            """,
            "adds the norms": """
                weights = [w for w in parameters if w.grad is not None]
                norm = sum(w.grad.norm().item() for w in weights)
                if norm > threshold:
                    for w in weights:
                        w.grad *= threshold / norm
                return norm
            """,
            "reads the parameters twice": """
                norm = math.sqrt(sum(
                    (w.grad**2).sum().item() for w in parameters if w.grad is not None
                ))
                if norm > threshold:
                    for w in parameters:
                        if w.grad is not None:
                            w.grad *= threshold / norm
                return norm
            """,
            "calls PyTorch's own": """
                return nn.utils.clip_grad_norm_(parameters, threshold).item()
            """,
            "clips the weights": """
                weights = list(parameters)
                norm = math.sqrt(sum((w**2).sum().item() for w in weights))
                if norm > threshold:
                    with torch.no_grad():
                        for w in weights:
                            w *= threshold / norm
                return norm
            """,
            "gives every parameter a gradient": """
                weights = list(parameters)
                for w in weights:
                    if w.grad is None:
                        w.grad = torch.zeros_like(w)
                norm = math.sqrt(sum((w.grad**2).sum().item() for w in weights))
                if norm > threshold:
                    for w in weights:
                        w.grad *= threshold / norm
                return norm
            """,
        },
        right={
            "all gradients as one vector": """
                weights = [w for w in parameters if w.grad is not None]
                norm = torch.cat([w.grad.flatten() for w in weights]).norm()
                share = torch.clamp(threshold / norm, max=1.0)
                for w in weights:
                    w.grad.mul_(share)
                return norm.item()
            """,
        },
    ),
]
