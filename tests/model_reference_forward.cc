#include "model_reference_forward.h"

#include <cmath>
#include <cstddef>

namespace ikv::testing {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

struct Forward {
  const ReferenceModel& m;

  const std::vector<float>* find(const std::string& name) const {
    const auto it = m.weights.find(name);
    return it == m.weights.end() ? nullptr : &it->second;
  }

  Row linear(const Row& x, const std::string& name) const {
    const std::vector<float>& w = m.weights.at(name + ".weight");
    const size_t num_outputs = w.size() / x.size();
    Row y(num_outputs, 0.0);
    for (size_t o = 0; o < num_outputs; ++o) {
      for (size_t i = 0; i < x.size(); ++i) y[o] += static_cast<double>(w[o * x.size() + i]) * x[i];
    }
    if (const auto* bias = find(name + ".bias")) {
      for (size_t o = 0; o < num_outputs; ++o) y[o] += static_cast<double>((*bias)[o]);
    }
    return y;
  }

  Row norm(const Row& x, const std::string& name) const {
    const std::vector<float>& w = m.weights.at(name + ".weight");
    double squares = 0.0;
    for (const double value : x) squares += value * value;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + m.norm_epsilon);
    Row y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * static_cast<double>(w[i]);
    return y;
  }

  void rotate(Row& heads, size_t pos) const {
    const size_t head_dim = static_cast<size_t>(m.head_dim);
    for (size_t begin = 0; begin < heads.size(); begin += head_dim) {
      for (size_t i = 0; i < m.inverse_freq.size(); ++i) {
        const double angle = static_cast<double>(pos) * m.inverse_freq[i];
        double& a = heads[begin + 2 * i];
        double& b = heads[begin + 2 * i + 1];
        const double old_a = a;
        a = (old_a * std::cos(angle) - b * std::sin(angle)) * m.rope_magnitude;
        b = (old_a * std::sin(angle) + b * std::cos(angle)) * m.rope_magnitude;
      }
    }
  }

  // Attention of the last row of q over all of k and v.
  Row attend(const Row& q, const Rows& k, const Rows& v) const {
    const size_t head_dim = static_cast<size_t>(m.head_dim);
    Row out(q.size(), 0.0);
    for (int h = 0; h < m.num_heads; ++h) {
      const size_t at = static_cast<size_t>(h) * head_dim;
      const size_t kv_at = static_cast<size_t>(h / (m.num_heads / m.num_kv_heads)) * head_dim;
      Row weights;
      double total = 0.0;
      for (const Row& key : k) {
        double score = 0.0;
        for (size_t i = 0; i < head_dim; ++i) score += q[at + i] * key[kv_at + i];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(m.head_dim))));
        total += weights.back();
      }
      for (size_t t = 0; t < v.size(); ++t) {
        for (size_t i = 0; i < head_dim; ++i) out[at + i] += weights[t] / total * v[t][kv_at + i];
      }
    }
    return out;
  }

  static void add(Row& x, const Row& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  void layer(const std::string& prefix, Rows& x) const {
    Rows k;
    Rows v;
    for (size_t pos = 0; pos < x.size(); ++pos) {
      const Row h = norm(x[pos], prefix + "attn_norm");
      Row q = linear(h, prefix + "attn_q");
      k.push_back(linear(h, prefix + "attn_k"));
      v.push_back(linear(h, prefix + "attn_v"));
      rotate(q, pos);
      rotate(k.back(), pos);
      add(x[pos], linear(attend(q, k, v), prefix + "attn_output"));
    }
    for (Row& row : x) {
      const Row h = norm(row, prefix + "ffn_norm");
      Row gate = linear(h, prefix + "ffn_gate");
      const Row up = linear(h, prefix + "ffn_up");
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1.0 + std::exp(-gate[i]));
      add(row, linear(gate, prefix + "ffn_down"));
    }
  }
};

}  // namespace

std::vector<std::vector<double>> reference_logits(const ReferenceModel& model,
                                                  const std::vector<int>& tokens) {
  const Forward forward{model};
  const std::vector<float>& embedding = model.weights.at("token_embd.weight");
  const size_t width = static_cast<size_t>(model.hidden_size);
  Rows x;
  for (const int token : tokens) {
    const auto begin =
        embedding.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(token) * width);
    x.emplace_back(begin, begin + model.hidden_size);
  }
  for (int layer = 0; layer < model.num_layers; ++layer) {
    forward.layer("blk." + std::to_string(layer) + ".", x);
  }
  const bool tied = model.weights.count("output.weight") == 0;
  Rows logits;
  for (const Row& row : x) {
    logits.push_back(
        forward.linear(forward.norm(row, "output_norm"), tied ? "token_embd" : "output"));
  }
  return logits;
}

}  // namespace ikv::testing
