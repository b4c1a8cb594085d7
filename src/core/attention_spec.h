// What one layer's attention is, apart from where its keys and values live.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ikv {

/// How RoPE pairs channels: kInterleaved rotates (2i, 2i+1), as GGUF's Llama files are permuted
/// for; kHalves rotates (i, i + dims/2), as GPT-NeoX does.
enum class RopePairs : uint8_t { kInterleaved, kHalves };

/// RoPE with its scaling folded into per-pair frequencies: angle(pos, i) = pos * inverse_freq[i].
/// (Su et al. 2021, section 3.4; linear, YaRN and Llama-3 scaling only change `inverse_freq` and
/// `magnitude`.) Built once per model by ops/rope.
struct RopeSpec {
  RopePairs pairs = RopePairs::kInterleaved;
  int num_dims = 0;                 ///< channels rotated, even; the rest pass through
  std::vector<float> inverse_freq;  ///< num_dims / 2 values
  float magnitude = 1.0f;           ///< YaRN's attention factor, multiplied into cos and sin
};

/// Shape and rules of one layer's attention. Query head h reads KV head h / (num_heads /
/// num_kv_heads).
struct AttentionSpec {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  float scale = 0.0f;          ///< multiplies q·k, usually 1/sqrt(head_dim)
  int window_tokens = 0;       ///< sliding window: a query at p sees keys p-window+1..p; 0 = all
  float logit_softcap = 0.0f;  ///< c·tanh(s/c) on scores when > 0
  const RopeSpec* rope = nullptr;  ///< null: no rotation
};

}  // namespace ikv
