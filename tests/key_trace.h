// Keys and queries of a real conversation, and how much attention mass a choice of tokens captures.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/contiguous_attention.h"
#include "kv/key_codes.h"
#include "model/model.h"

namespace ikv::testing {

/// Keys of all tokens and queries of the last rows, both after RoPE, by layer.
struct KeyTrace {
  struct Layer {
    AttentionSpec spec;
    std::vector<float> keys;     ///< [token][kv_head][head_dim]
    std::vector<float> queries;  ///< [row][head][head_dim]
  };
  int num_tokens = 0;
  int num_queries = 0;  ///< the last rows, at positions num_tokens - num_queries ...
  std::vector<Layer> layers;
};

/// Hands attention on to a plain cache and keeps what it rotated.
class TracingAttention : public LayerAttention {
 public:
  TracingAttention(ContiguousAttention& inner, KeyTrace& trace) : inner_(inner), trace_(trace) {}
  void begin_chunk(int first, int num_rows) {
    first_ = first;
    num_rows_ = num_rows;
  }
  Status attend(int layer, const AttentionSpec& spec, float* q, float* k, const float* v,
                float* out) override {
    IKV_RETURN_IF_ERROR(inner_.attend(layer, spec, q, k, v, out));
    KeyTrace::Layer& kept = trace_.layers[static_cast<size_t>(layer)];
    kept.spec = spec;
    const int kv_width = spec.num_kv_heads * spec.head_dim;
    kept.keys.insert(kept.keys.end(), k, k + static_cast<size_t>(num_rows_) * kv_width);
    const int q_width = spec.num_heads * spec.head_dim;
    const int skip = std::clamp(trace_.num_tokens - trace_.num_queries - first_, 0, num_rows_);
    kept.queries.insert(kept.queries.end(), q + static_cast<size_t>(skip) * q_width,
                        q + static_cast<size_t>(num_rows_) * q_width);
    return {};
  }

 private:
  ContiguousAttention& inner_;
  KeyTrace& trace_;
  int first_ = 0;
  int num_rows_ = 0;
};

/// Runs `tokens` through the model in chunks of 256.
inline Result<KeyTrace> trace_keys(const Model& model, const std::vector<TokenId>& tokens,
                                   int num_queries, ThreadPool& threads) {
  KeyTrace trace;
  trace.num_tokens = static_cast<int>(tokens.size());
  trace.num_queries = num_queries;
  trace.layers.resize(static_cast<size_t>(model.config().num_layers));
  ContiguousAttention inner(model.config().num_layers, 1, threads);
  TracingAttention tracing(inner, trace);
  Workspace workspace(threads);
  for (int begin = 0; begin < trace.num_tokens; begin += 256) {
    const int count = std::min(256, trace.num_tokens - begin);
    std::vector<ContiguousRow> rows;
    for (int i = 0; i < count; ++i) rows.push_back({0, begin + i});
    IKV_RETURN_IF_ERROR(inner.begin_step(rows));
    tracing.begin_chunk(begin, count);
    const std::span<const TokenId> chunk(tokens.data() + begin, static_cast<size_t>(count));
    IKV_RETURN_IF_ERROR(model.forward({chunk, {}}, tracing, workspace, nullptr));
  }
  return trace;
}

/// Scores of `num_tokens` keys for each query of one KV head's group: out[query][token].
using GroupScorer =
    std::function<void(const KeyTrace::Layer& layer, int layer_index, int kv_head,
                       const float* queries, int group, int num_tokens, std::vector<float>& out)>;

/// Logits in the queries' own scale (no attention scale).
inline void exact_scores(const KeyTrace::Layer& layer, int, int kv_head, const float* queries,
                         int group, int num_tokens, std::vector<float>& out) {
  const int d = layer.spec.head_dim;
  const int width = layer.spec.num_kv_heads * d;
  out.resize(static_cast<size_t>(group) * num_tokens);
  for (int g = 0; g < group; ++g) {
    for (int t = 0; t < num_tokens; ++t) {
      const float* key = layer.keys.data() + static_cast<size_t>(t) * width + kv_head * d;
      out[static_cast<size_t>(g) * num_tokens + t] =
          std::inner_product(key, key + d, queries + g * d, 0.0f);
    }
  }
}

/// Scores by the key codes of `books`, as the engine computes them.
inline GroupScorer code_scorer(const KeyCodebooks& books) {
  return [&books](const KeyTrace::Layer& layer, int index, int kv_head, const float* queries,
                  int group, int num_tokens, std::vector<float>& out) {
    const int d = layer.spec.head_dim;
    const auto book = books.head(index, kv_head);
    const size_t rows = (static_cast<size_t>(num_tokens) + 15) / 16 * 16;
    std::vector<std::byte> codes(rows * key_code_bytes_per_token(d));
    encode_keys(book, d, layer.keys.data() + kv_head * d,
                static_cast<size_t>(layer.spec.num_kv_heads) * d, num_tokens, 0, codes.data());
    KeyScanTables tables;
    build_scan_tables(book, d, queries, static_cast<size_t>(d), group, tables);
    out.resize(static_cast<size_t>(group) * num_tokens);
    scan_key_codes(tables, codes.data(), num_tokens, out.data(), static_cast<size_t>(num_tokens));
  };
}

/// Mean over layers, KV heads and query rows of the softmax mass of the `share` of the candidate
/// tokens with the highest score (max over the group), averaged over the group. Candidates are all
/// tokens but the first `sink` and the last `recent`; mass is normalised over the candidates.
inline double captured_mass(const KeyTrace& trace, const GroupScorer& scorer, double share,
                            int sink, int recent, int query_step = 1) {
  double total = 0.0;
  int64_t count = 0;
  std::vector<float> exact, scores;
  for (size_t l = 0; l < trace.layers.size(); ++l) {
    const KeyTrace::Layer& layer = trace.layers[l];
    const int d = layer.spec.head_dim;
    const int group = layer.spec.num_heads / layer.spec.num_kv_heads;
    for (int row = 0; row < trace.num_queries; row += query_step) {
      const int n = trace.num_tokens - trace.num_queries + row + 1;
      for (int h = 0; h < layer.spec.num_kv_heads; ++h) {
        const float* q = layer.queries.data() +
                         (static_cast<size_t>(row) * layer.spec.num_heads + h * group) * d;
        exact_scores(layer, static_cast<int>(l), h, q, group, n, exact);
        scorer(layer, static_cast<int>(l), h, q, group, n, scores);
        std::vector<int> order(static_cast<size_t>(n - sink - recent));
        std::iota(order.begin(), order.end(), sink);
        std::vector<float> best(static_cast<size_t>(n), -INFINITY);
        for (int g = 0; g < group; ++g) {
          for (int t = 0; t < n; ++t) best[t] = std::max(best[t], scores[g * n + t]);
        }
        const size_t keep = static_cast<size_t>(share * static_cast<double>(order.size()));
        std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(keep), order.end(),
                         [&](int a, int b) { return best[a] > best[b]; });
        for (int g = 0; g < group; ++g) {
          const float* s = exact.data() + static_cast<size_t>(g) * n;
          const float max = *std::max_element(s + sink, s + n - recent);
          double all = 0.0, kept = 0.0;
          for (size_t i = 0; i < order.size(); ++i) {
            const double p = std::exp(static_cast<double>(layer.spec.scale * (s[order[i]] - max)));
            all += p;
            if (i < keep) kept += p;
          }
          total += kept / all;
          ++count;
        }
      }
    }
  }
  return total / static_cast<double>(count);
}

}  // namespace ikv::testing
