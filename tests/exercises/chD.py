"""Solutions of the exercises of appendix D, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="D-1be4abb1",
        wrong={
            "all logits at once": """
                return ((states @ weight.T).argmax(1) == targets).float().mean().item()
            """,
            "forgets the last chunk, which is not full": """
                right = 0
                for i in range(len(states) // chunk):
                    part = slice(i * chunk, (i + 1) * chunk)
                    best = (states[part] @ weight.T).argmax(1)
                    right += (best == targets[part]).sum().item()
                return right / len(targets)
            """,
            "the mean of the chunks' means": """
                shares = []
                for x, y in zip(states.split(chunk), targets.split(chunk)):
                    best = (x @ weight.T).argmax(1)
                    shares.append((best == y).float().mean().item())
                return sum(shares) / len(shares)
            """,
            "a count, not a share": """
                right = 0
                for x, y in zip(states.split(chunk), targets.split(chunk)):
                    right += ((x @ weight.T).argmax(1) == y).sum().item()
                return right
            """,
            "the best position of each word": """
                right = 0
                for x, y in zip(states.split(chunk), targets.split(chunk)):
                    best = (x @ weight.T).argmax(0)
                    right += (best[: len(y)] == y).sum().item()
                return right / len(targets)
            """,
            "as many chunks as a chunk has positions": """
                right = 0
                for x, y in zip(states.chunk(chunk), targets.chunk(chunk)):
                    right += ((x @ weight.T).argmax(1) == y).sum().item()
                return right / (len(states.chunk(chunk)) * chunk)
            """,
            "the lowest logit": """
                right = 0
                for x, y in zip(states.split(chunk), targets.split(chunk)):
                    right += ((x @ weight.T).argmin(1) == y).sum().item()
                return right / len(targets)
            """,
            "the best two words count": """
                right = 0
                for x, y in zip(states.split(chunk), targets.split(chunk)):
                    best = (x @ weight.T).topk(2, dim=1).indices
                    right += (best == y.unsqueeze(1)).any(1).sum().item()
                return right / len(targets)
            """,
            "word 0 taken for padding": """
                right = 0
                for x, y in zip(states.split(chunk), targets.split(chunk)):
                    right += (((x @ weight.T).argmax(1) == y) & (y != 0)).sum().item()
                return right / len(targets)
            """,
            "all logits, put together from chunks": """
                logits = torch.cat([x @ weight.T for x in states.split(chunk)])
                return (logits.argmax(1) == targets).float().mean().item()
            """,
            "a chunk is right or wrong as a whole": """
                right = 0
                for x, y in zip(states.split(chunk), targets.split(chunk)):
                    right += len(y) * bool(((x @ weight.T).argmax(1) == y).all())
                return right / len(targets)
            """,
            "stops at the first wrong word": """
                for i, (x, y) in enumerate(zip(states, targets)):
                    if (weight @ x).argmax() != y:
                        return i / len(targets)
                return 1.0
            """,
            "chunks of the vocabulary, numbered from 0 in each": """
                top = torch.full((len(states),), -math.inf)
                best = torch.zeros(len(states), dtype=torch.long)
                for part in weight.split(chunk):
                    value, index = (states @ part.T).max(1)
                    best = torch.where(value > top, index, best)
                    top = torch.maximum(top, value)
                return (best == targets).float().mean().item()
            """,
        },
        right={
            "by index": """
                hits = []
                for i in range(0, len(states), chunk):
                    logits = weight @ states[i : i + chunk].T
                    hits += (logits.argmax(0) == targets[i : i + chunk]).tolist()
                return sum(hits) / len(hits)
            """,
            "one position after the other": """
                right = 0
                for x, y in zip(states, targets):
                    right += int((weight @ x).argmax() == y)
                return right / len(targets)
            """,
        },
    ),
    Exercise(
        cell="D-d4351d56",
        wrong={
            "the values alone": """
                return torch.allclose(simple(*inputs), fast(*inputs), 1e-6, 1e-6)
            """,
            "the first gradient alone": """
                found = []
                for function in (simple, fast):
                    own = [x.detach().clone().requires_grad_() for x in inputs]
                    value = function(*own)
                    value.backward()
                    found.append((value.detach(), own[0].grad))
                return all(
                    a is not None and b is not None and torch.allclose(a, b, 1e-6, 1e-6)
                    for a, b in zip(*found)
                )
            """,
            "gradients that add up in the inputs": """
                found = []
                for function in (simple, fast):
                    for x in inputs:
                        x.requires_grad_()
                    value = function(*inputs)
                    value.backward()
                    zero = [torch.zeros_like(x) for x in inputs]
                    grads = [z if x.grad is None else x.grad.clone()
                             for x, z in zip(inputs, zero)]
                    found.append([value.detach(), *grads])
                return all(torch.allclose(a, b, 1e-6, 1e-6) for a, b in zip(*found))
            """,
            "the gradients alone": """
                found = []
                for function in (simple, fast):
                    own = [x.detach().clone().requires_grad_() for x in inputs]
                    value = function(*own)
                    found.append(
                        torch.autograd.grad(value, own, materialize_grads=True)
                    )
                return all(torch.allclose(a, b, 1e-6, 1e-6) for a, b in zip(*found))
            """,
            "the norms of the gradients": """
                found = []
                for function in (simple, fast):
                    own = [x.detach().clone().requires_grad_() for x in inputs]
                    value = function(*own)
                    grads = torch.autograd.grad(value, own, materialize_grads=True)
                    found.append([value.detach(), *[g.norm() for g in grads]])
                return all(torch.allclose(a, b, 1e-6, 1e-6) for a, b in zip(*found))
            """,
            "two digits": """
                found = []
                for function in (simple, fast):
                    own = [x.detach().clone().requires_grad_() for x in inputs]
                    value = function(*own)
                    grads = torch.autograd.grad(value, own, materialize_grads=True)
                    found.append([value.detach(), *grads])
                return all(torch.allclose(a, b, 1e-2, 1e-2) for a, b in zip(*found))
            """,
            "a missing gradient is an error": """
                found = []
                for function in (simple, fast):
                    own = [x.detach().clone().requires_grad_() for x in inputs]
                    value = function(*own)
                    found.append([value.detach(), *torch.autograd.grad(value, own)])
                return all(torch.allclose(a, b, 1e-6, 1e-6) for a, b in zip(*found))
            """,
            "four digits": """
                found = []
                for function in (simple, fast):
                    own = [x.detach().clone().requires_grad_() for x in inputs]
                    value = function(*own)
                    grads = torch.autograd.grad(value, own, materialize_grads=True)
                    found.append([value.detach(), *grads])
                return all(torch.allclose(a, b, 1e-4, 1e-4) for a, b in zip(*found))
            """,
            "bit for bit": """
                found = []
                for function in (simple, fast):
                    own = [x.detach().clone().requires_grad_() for x in inputs]
                    value = function(*own)
                    grads = torch.autograd.grad(value, own, materialize_grads=True)
                    found.append([value.detach(), *grads])
                return all(torch.equal(a, b) for a, b in zip(*found))
            """,
            "the sums of the differences": """
                found = []
                for function in (simple, fast):
                    own = [x.detach().clone().requires_grad_() for x in inputs]
                    value = function(*own)
                    grads = torch.autograd.grad(value, own, materialize_grads=True)
                    found.append([value.detach(), *grads])
                return all(abs((a - b).sum()) < 1e-6 for a, b in zip(*found))
            """,
            "inputs that need gradients from now on": """
                found = []
                for function in (simple, fast):
                    own = [x.requires_grad_() for x in inputs]
                    value = function(*own)
                    grads = torch.autograd.grad(value, own, materialize_grads=True)
                    found.append([value.detach(), *grads])
                return all(torch.allclose(a, b, 1e-6, 1e-6) for a, b in zip(*found))
            """,
            "no copies of the inputs": """
                found = []
                for function in (simple, fast):
                    own = [x.detach().requires_grad_() for x in inputs]
                    value = function(*own)
                    grads = torch.autograd.grad(value, own, materialize_grads=True)
                    found.append([value.detach(), *grads])
                return all(torch.allclose(a, b, 1e-6, 1e-6) for a, b in zip(*found))
            """,
            "one set of copies for both functions": """
                own = [x.detach().clone().requires_grad_() for x in inputs]
                found = []
                for function in (simple, fast):
                    value = function(*own)
                    value.backward()
                    found.append([value.detach()] + [
                        torch.zeros_like(x) if x.grad is None else x.grad.clone()
                        for x in own
                    ])
                return all(torch.allclose(a, b, 1e-6, 1e-6) for a, b in zip(*found))
            """,
            "a missing gradient is left out": """
                found = []
                for function in (simple, fast):
                    own = [x.detach().clone().requires_grad_() for x in inputs]
                    value = function(*own)
                    grads = torch.autograd.grad(value, own, allow_unused=True)
                    found.append([value.detach(), *grads])
                return all(
                    torch.allclose(a, b, 1e-6, 1e-6)
                    for a, b in zip(*found)
                    if a is not None and b is not None
                )
            """,
        },
        right={
            "with backward on copies": """
                found = []
                for function in (simple, fast):
                    own = [x.clone().detach().requires_grad_() for x in inputs]
                    value = function(*own)
                    value.backward()
                    found.append([value.item()] + [
                        torch.zeros_like(x) if x.grad is None else x.grad for x in own
                    ])
                if abs(found[0][0] - found[1][0]) > 1e-6 * (1 + abs(found[0][0])):
                    return False
                return all(
                    ((a - b).abs() <= 1e-6 + 1e-6 * b.abs()).all()
                    for a, b in zip(found[0][1:], found[1][1:])
                )
            """,
        },
    ),
]
