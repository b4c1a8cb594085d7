// The weights of a decoder, by role.
#pragma once

#include <optional>
#include <vector>

#include "model/linear.h"

namespace ikv {

/// Norm weights are empty where LayerSpec says that the part is absent.
struct LayerWeights {
  std::vector<float> attention_norm;
  Linear q, k, v;
  std::vector<float> q_norm, k_norm;
  Linear attention_output;
  std::vector<float> post_attention_norm;
  std::vector<float> ffn_norm;
  Linear gate, up, down;
  std::vector<float> post_ffn_norm;
};

struct DecoderWeights {
  Linear embedding;
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;
  std::optional<Linear> untied_output;

  const Linear& output_matrix() const { return untied_output ? *untied_output : embedding; }

  uint64_t size_bytes() const;
};

}  // namespace ikv
