// Workspace: what a forward needs besides the model: threads and scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "model/decoder_spec.h"

namespace ikv {

/// Scratch rows of float32, grown to the largest batch and kept. One per thread that calls
/// forward().
class Workspace {
 public:
  /// `threads` must outlive the workspace.
  explicit Workspace(ThreadPool& threads) : threads_(&threads) {}

  ThreadPool& threads() { return *threads_; }

  /// Makes room for `num_rows` rows; kOutOfMemory if the system refuses. Pointers change.
  Status reserve(const DecoderSpec& spec, size_t num_rows);

  /// Bytes that reserve() of so many rows takes, for the memory ledger.
  static uint64_t bytes_for(const DecoderSpec& spec, size_t num_rows);
  uint64_t size_bytes() const { return buffer_.size_bytes(); }

  float* x = nullptr;                   ///< residual stream, [rows][hidden_size]
  float* normed = nullptr;              ///< [rows][hidden_size]
  float* branch = nullptr;              ///< what a branch adds, [rows][hidden_size]
  float* q = nullptr;                   ///< [rows][num_heads * head_dim]
  float* k = nullptr;                   ///< [rows][num_kv_heads * head_dim]
  float* v = nullptr;                   ///< like k
  float* attended = nullptr;            ///< like q
  float* gate = nullptr;                ///< [rows][ffn_size]
  float* up = nullptr;                  ///< like gate
  std::byte* matmul_scratch = nullptr;  ///< matmul_scratch_bytes() of the widest input

 private:
  ThreadPool* threads_;
  AlignedBuffer buffer_;
};

}  // namespace ikv
