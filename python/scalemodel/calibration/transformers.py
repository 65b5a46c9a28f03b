"""Small decoders in torch whose matrices may be split over ranks. Only ranks import torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def modules(torch: Any) -> Any:
    """Classes of a decoder whose matrices may be split over the ranks of a tensor group."""
    nn, functional = torch.nn, torch.nn.functional

    class Copied(torch.autograd.Function):  # type: ignore[misc]
        """Identity forward; backward sums what every tensor rank found."""

        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            gradient = gradient.contiguous()
            torch.distributed.all_reduce(gradient)
            return gradient

    class Summed(torch.autograd.Function):  # type: ignore[misc]
        """Sums over tensor ranks forward; identity backward."""

        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            x = x.contiguous()
            torch.distributed.all_reduce(x)
            return x

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return gradient

    class SplitLoss(torch.autograd.Function):  # type: ignore[misc]
        """Cross-entropy of logits whose columns are split over the tensor ranks.

        Each rank has the exponentials of its columns; their maximum, their sum and the logit of
        the label are exchanged, a number a token (Shoeybi et al., arXiv 1909.08053, section 3).
        """

        @staticmethod
        def forward(context: Any, logits: Any, labels: Any) -> Any:
            distributed = torch.distributed
            columns = logits.shape[-1]
            most = logits.amax(-1, keepdim=True)
            distributed.all_reduce(most, op=distributed.ReduceOp.MAX)
            shifted = logits - most
            own = labels - columns * distributed.get_rank()
            held = ((own >= 0) & (own < columns))[:, None]
            place = own.clamp(0, columns - 1)[:, None]
            of_label = shifted.gather(-1, place) * held
            exponentials = shifted.exp_()
            sums = torch.cat([exponentials.sum(-1, keepdim=True), of_label])
            distributed.all_reduce(sums)
            total, of_label = sums.chunk(2)
            context.save_for_backward(exponentials.div_(total), place, held)
            return (total.log() - of_label).mean()

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            shares, place, held = context.saved_tensors
            shares.scatter_add_(-1, place, -held.to(shares.dtype))
            return shares.mul_(gradient / len(shares)), None

    class SplitEmbedding(nn.Module):  # type: ignore[name-defined,misc]
        """Rows of an embedding split over the tensor ranks."""

        def __init__(self, vocab: int, hidden: int, tp: int) -> None:
            super().__init__()
            self.rows, self.tp = vocab // tp, tp
            self.table = nn.Embedding(self.rows, hidden)

        def forward(self, tokens: Any) -> Any:
            if self.tp == 1:
                return self.table(tokens)
            own = tokens - self.rows * torch.distributed.get_rank()
            held = (own >= 0) & (own < self.rows)
            return Summed.apply(self.table(own.clamp(0, self.rows - 1)) * held[..., None])

    class Attention(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, hidden: int, heads: int, tp: int) -> None:
            super().__init__()
            self.heads, self.tp = heads // tp, tp
            self.qkv = nn.Linear(hidden, 3 * hidden // tp)
            self.out = nn.Linear(hidden // tp, hidden)

        def forward(self, x: Any) -> Any:
            x = Copied.apply(x) if self.tp > 1 else x
            parts = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
            q, k, v = (part.transpose(1, 2) for part in parts)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = self.out(y.transpose(1, 2).flatten(2))
            return Summed.apply(y) if self.tp > 1 else y

    class Mlp(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, hidden: int, ffn: int, tp: int, bias: bool = True) -> None:
            super().__init__()
            self.tp = tp
            self.up = nn.Linear(hidden, ffn // tp, bias=bias)
            self.down = nn.Linear(ffn // tp, hidden, bias=bias)

        def forward(self, x: Any) -> Any:
            x = Copied.apply(x) if self.tp > 1 else x
            y = self.down(functional.gelu(self.up(x)))
            return Summed.apply(y) if self.tp > 1 else y

    class Experts(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, hidden: int, ffn: int, experts: int, top_k: int) -> None:
            super().__init__()
            self.top_k = top_k
            self.router = nn.Linear(hidden, experts, bias=False)
            self.experts = nn.ModuleList(Mlp(hidden, ffn, 1, False) for _ in range(experts))

        def forward(self, x: Any) -> Any:
            tokens = x.flatten(0, 1)
            shares, chosen = self.router(tokens).softmax(-1).topk(self.top_k, dim=-1)
            order = chosen.flatten().argsort(stable=True)
            counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
            rows = tokens[order // self.top_k].split(counts)
            found = [one(part) for one, part in zip(self.experts, rows, strict=True)]
            out = torch.cat(found) * shares.flatten()[order, None]
            return torch.zeros_like(tokens).index_add(0, order // self.top_k, out).view_as(x)

    class Block(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, model: Mapping[str, int], tp: int) -> None:
            super().__init__()
            hidden = model["hidden"]
            self.attention_norm, self.feed_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.attention = Attention(hidden, model["heads"], tp)
            experts = model.get("experts", 0)
            self.feed = (
                Experts(hidden, model["ffn"], experts, model["experts_per_token"])
                if experts
                else Mlp(hidden, model["ffn"], tp)
            )

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.attention_norm(x))
            return x + self.feed(self.feed_norm(x))

    class Stage(nn.Module):  # type: ignore[name-defined,misc]
        """Consecutive blocks of a decoder; the first has the embeddings, the last the LM head."""

        def __init__(self, model: Mapping[str, int], tp: int, stage: int, stages: int) -> None:
            super().__init__()
            hidden, vocab = model["hidden"], model["vocab"]
            first, last = stage == 0, stage == stages - 1
            self.tp = tp
            self.tokens = SplitEmbedding(vocab, hidden, tp) if first else None
            self.places: Any = nn.Embedding(model["positions"], hidden) if first else None
            self.blocks = nn.ModuleList(Block(model, tp) for _ in range(model["layers"] // stages))
            self.norm: Any = nn.LayerNorm(hidden) if last else None
            self.head = nn.Linear(hidden, vocab // tp, bias=False) if last else None

        def forward(self, x: Any) -> Any:
            if self.tokens is not None:
                x = self.tokens(x) + self.places.weight[: x.shape[1]]
            for block in self.blocks:
                x = block(x)
            if self.head is None:
                return x
            x = self.norm(x)
            return self.head(Copied.apply(x) if self.tp > 1 else x)

        def loss(self, logits: Any, labels: Any) -> Any:
            logits, labels = logits.flatten(0, 1), labels.flatten()
            if self.tp > 1:
                return SplitLoss.apply(logits, labels)
            return functional.cross_entropy(logits, labels)

    return Stage
