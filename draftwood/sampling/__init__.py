"""How tokens are drawn from the target's logits: parameters, processors, random numbers."""
