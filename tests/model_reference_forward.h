// A whole-sequence forward in double, written for reading: what model tests compare with.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace ikv::testing {

/// A decoder by its numbers and its weights as floats, by GGUF name, row-major [outputs][inputs].
struct ReferenceModel {
  int num_layers = 0;
  int hidden_size = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  double norm_epsilon = 1e-5;
  std::vector<double> inverse_freq;  ///< one per rotated pair (2i, 2i+1)
  double rope_magnitude = 1.0;
  std::map<std::string, std::vector<float>> weights;
};

/// Logits [tokens][vocabulary] of one sequence: RMSNorm, interleaved RoPE, grouped-query attention,
/// SwiGLU, residuals; biases where there are any; output tied to the embedding where there is none.
std::vector<std::vector<double>> reference_logits(const ReferenceModel& model,
                                                  const std::vector<int>& tokens);

}  // namespace ikv::testing
