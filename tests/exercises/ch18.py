"""Solutions of the exercises of chapter 18, right and wrong."""

from harness import Exercise

EXERCISES = [
    Exercise(
        cell="18-e53c21ed",
        wrong={
            "PyTorch's softmax over minus infinity": """
                hidden = scores.masked_fill(~mask, -math.inf)
                return hidden.softmax(dim=-1).nan_to_num(0.0)
            """,
            "the largest score of all, hidden ones included": """
                shifted = scores - scores.max(dim=-1, keepdim=True).values
                weights = torch.where(mask, shifted.exp(), 0.0)
                return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-4)
            """,
            "the exponential before the mask": """
                lowest = torch.finfo(scores.dtype).min
                largest = torch.where(mask, scores, lowest).amax(-1, keepdim=True)
                weights = (scores - largest).exp() * mask
                return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-4)
            """,
            "no rule for the empty row": """
                lowest = torch.finfo(scores.dtype).min
                largest = torch.where(mask, scores, lowest).amax(-1, keepdim=True)
                shifted = torch.where(mask, scores - largest, 0.0)
                weights = torch.where(mask, shifted.exp(), 0.0)
                return weights / weights.sum(dim=-1, keepdim=True)
            """,
            "nothing subtracted": """
                weights = torch.where(mask, torch.where(mask, scores, 0.0).exp(), 0.0)
                return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-4)
            """,
            "the largest of the whole tensor": """
                largest = scores[mask].max()
                shifted = torch.where(mask, scores - largest, 0.0)
                weights = torch.where(mask, shifted.exp(), 0.0)
                return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-4)
            """,
            "columns in place of rows": """
                lowest = torch.finfo(scores.dtype).min
                largest = torch.where(mask, scores, lowest).amax(-2, keepdim=True)
                shifted = torch.where(mask, scores - largest, 0.0)
                weights = torch.where(mask, shifted.exp(), 0.0)
                return weights / weights.sum(dim=-2, keepdim=True).clamp(min=1e-4)
            """,
            "fills the scores that it was given": """
                lowest = torch.finfo(scores.dtype).min
                scores[~mask] = lowest
                shifted = scores - scores.max(dim=-1, keepdim=True).values
                weights = torch.where(mask, shifted.exp(), 0.0)
                return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-4)
            """,
            "zero for the hidden scores": """
                kept = torch.where(mask, scores, 0.0)
                shifted = kept - kept.max(dim=-1, keepdim=True).values
                weights = torch.where(mask, shifted.exp(), 0.0)
                return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-4)
            """,
            "a tiny number in the sum, too small for half": """
                lowest = torch.finfo(scores.dtype).min
                allowed = torch.where(mask, scores, lowest)
                largest = allowed.max(dim=-1, keepdim=True).values
                shifted = torch.where(mask, scores - largest, 0.0)
                weights = torch.where(mask, shifted.exp(), 0.0)
                return weights / (weights.sum(dim=-1, keepdim=True) + 1e-9)
            """,
            "one in the sum": """
                lowest = torch.finfo(scores.dtype).min
                allowed = torch.where(mask, scores, lowest)
                largest = allowed.max(dim=-1, keepdim=True).values
                shifted = torch.where(mask, scores - largest, 0.0)
                weights = torch.where(mask, shifted.exp(), 0.0)
                return weights / (weights.sum(dim=-1, keepdim=True) + 1)
            """,
            "always in single precision": """
                kept = torch.where(mask, scores.float(), torch.finfo(torch.float32).min)
                shifted = kept - kept.max(dim=-1, keepdim=True).values
                weights = torch.where(mask, shifted.exp(), 0.0)
                return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-4)
            """,
        },
        right={
            "one allowed key at least in the sum": """
                lowest = torch.finfo(scores.dtype).min
                largest = torch.where(mask, scores, lowest).amax(-1, keepdim=True)
                weights = torch.zeros_like(scores)
                weights[mask] = (scores - largest)[mask].exp()
                total = weights.sum(dim=-1, keepdim=True)
                return torch.where(total > 0, weights / total, 0.0)
            """,
        },
    ),
    Exercise(
        cell="18-fcb2c2ef",
        wrong={
            "drops the output": """
                output, weights = super().attend(query, keys, values, mask, True)
                output = F.dropout(output, self.p, training=self.training)
                return output, weights if need_weights else None
            """,
            "always a tenth": """
                _, weights = super().attend(query, keys, values, mask, True)
                dropped = F.dropout(weights, 0.1, training=self.training)
                output = self.output_projection(merge_heads(dropped @ values))
                return output, dropped if need_weights else None
            """,
            "forgets the mask": """
                _, weights = super().attend(query, keys, values, None, True)
                dropped = F.dropout(weights, self.p, training=self.training)
                output = self.output_projection(merge_heads(dropped @ values))
                return output, dropped if need_weights else None
            """,
            "drops in evaluation, too": """
                _, weights = super().attend(query, keys, values, mask, True)
                dropped = F.dropout(weights, self.p)
                output = self.output_projection(merge_heads(dropped @ values))
                return output, dropped if need_weights else None
            """,
            "returns dropped weights, but does not use them": """
                output, weights = super().attend(query, keys, values, mask, True)
                dropped = F.dropout(weights, self.p, training=self.training)
                return output, dropped if need_weights else None
            """,
            "normalizes the rows again": """
                _, weights = super().attend(query, keys, values, mask, True)
                dropped = F.dropout(weights, self.p, training=self.training)
                dropped = dropped / dropped.sum(-1, keepdim=True).clamp(min=1e-9)
                output = self.output_projection(merge_heads(dropped @ values))
                return output, dropped if need_weights else None
            """,
            "drops the values": """
                _, weights = super().attend(query, keys, values, mask, True)
                values = F.dropout(values, self.p, training=self.training)
                output = self.output_projection(merge_heads(weights @ values))
                return output, weights if need_weights else None
            """,
            "drops whole keys, for all queries and heads": """
                _, weights = super().attend(query, keys, values, mask, True)
                kept = torch.ones(weights.size(-1))
                dropped = weights * F.dropout(kept, self.p, training=self.training)
                output = self.output_projection(merge_heads(dropped @ values))
                return output, dropped if need_weights else None
            """,
            "one toss for all heads": """
                _, weights = super().attend(query, keys, values, mask, True)
                kept = torch.ones_like(weights[:, :1])
                dropped = weights * F.dropout(kept, self.p, training=self.training)
                output = self.output_projection(merge_heads(dropped @ values))
                return output, dropped if need_weights else None
            """,
            "keeps the survivors as they are": """
                _, weights = super().attend(query, keys, values, mask, True)
                if self.training:
                    weights = weights * (torch.rand_like(weights) >= self.p)
                output = self.output_projection(merge_heads(weights @ values))
                return output, weights if need_weights else None
            """,
            "returns weights that nobody asked for": """
                _, weights = super().attend(query, keys, values, mask, True)
                dropped = F.dropout(weights, self.p, training=self.training)
                return self.output_projection(merge_heads(dropped @ values)), dropped
            """,
            "p is what is kept": """
                _, weights = super().attend(query, keys, values, mask, True)
                dropped = F.dropout(weights, 1 - self.p, training=self.training)
                output = self.output_projection(merge_heads(dropped @ values))
                return output, dropped if need_weights else None
            """,
        },
        right={
            "by a mask of its own": """
                _, weights = super().attend(query, keys, values, mask, True)
                if self.training:
                    keep = torch.rand_like(weights) >= self.p
                    weights = weights * keep / (1 - self.p)
                output = self.output_projection(merge_heads(weights @ values))
                return output, weights if need_weights else None
            """,
        },
    ),
]
