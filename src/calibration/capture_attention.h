// CaptureAttention: exact attention over one chunk that takes samples of its keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "core/layer_attention.h"
#include "core/rope.h"
#include "kv/key_codebook_fit.h"

namespace ikv {

/// Stands behind a model while a calibration text runs: each chunk is a sequence of its own, and
/// every key, before RoPE, is rotated to several random positions of the model's context and
/// offered to a sampler. Keys of a session come from all positions, and what a code must tell apart
/// is the rotated key. Not thread-safe. Cost of a chunk of n rows: n² / 2 dot products a head.
class CaptureAttention : public LayerAttention {
 public:
  /// `sampler` must outlive this. `rotations` positions a key, drawn from [0, context_tokens).
  CaptureAttention(KeySampler& sampler, int rotations, int context_tokens, uint64_t seed,
                   ThreadPool& threads);

  /// Starts a chunk of `num_rows` rows at positions 0, 1, ...: draws their random positions, the
  /// same for all layers and heads, so that angles are computed once.
  void begin_chunk(size_t num_rows);

  /// Sums of squares of the queries' channels that read one KV head, rotated like the keys.
  std::span<const double> query_energy(int layer, int kv_head) const {
    return query_energy_[static_cast<size_t>(layer)][static_cast<size_t>(kv_head)];
  }

  Status attend(int layer, const AttentionSpec& spec, float* q, float* k, const float* v,
                float* out) override;

 private:
  // Angles of one RopeSpec in this chunk: of the rows' own positions, and of the random ones.
  struct Angles {
    const RopeSpec* rope = nullptr;
    std::vector<RopeAngles> own;     // [row]
    std::vector<RopeAngles> random;  // [row][rotation]
  };
  const Angles& angles_of(const RopeSpec& rope);
  void offer_keys(int layer, const AttentionSpec& spec, const float* k);
  void add_query_energy(int layer, const AttentionSpec& spec, const float* q);

  KeySampler& sampler_;
  ThreadPool& threads_;
  int rotations_;
  uint64_t context_tokens_;
  uint64_t random_state_;
  size_t num_rows_ = 0;
  std::vector<int64_t> random_positions_;  // [row][rotation]
  std::vector<Angles> angles_;
  std::vector<std::vector<std::vector<double>>> query_energy_;  // [layer][kv_head][channel]
};

}  // namespace ikv
