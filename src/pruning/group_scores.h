// From the logits of a group of query heads to one comparable score per token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ikv {

/// scores[i] of 16 bits from logits[g * stride + i] of `num_queries` query heads that share a KV
/// head: the log of token i's softmax mass, normalised per query over all `size` logits, then the
/// greatest of the group, on a scale of 1,024 steps a nat; 65,535 is all of the mass, 0 is e^-64 of
/// it or less, or a logit of -infinity. `lse` [num_queries] takes each query's log-sum-exp. Vector
/// code with a fixed order of sums; about one exponential a logit.
void group_log_mass(const float* logits, size_t stride, int num_queries, size_t size,
                    uint16_t* scores, float* lse);

}  // namespace ikv
